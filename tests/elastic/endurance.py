"""`python -m tests.elastic.endurance kills|bits`: what takes minutes and gives figures.

kills: 20 workers killed one after the other; descriptors, threads and memory of a survivor and of the controller.
bits: 500 steps in deterministic mode over 2, 4, 3, 1, 3 workers at each stage; the curve must be that of one worker.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import torch

from tests.elastic.cluster import Attempt, Bench, ray_head
from tests.elastic.conftest import ROOT

KILLS = 20
STEPS, SIZES = 500, (2, 4, 3, 1, 3)


def footprint(pid: int) -> str:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return (
        f"{descriptors} descriptors, {int(status['Threads'])} threads, {int(status['VmRSS'].split()[0]) / 1e3:.0f} MB"
    )


def kills(bench: Bench) -> bool:
    """Rank 0 survives them all."""
    with bench.attempt(bench.spec(stage=2, steps=100_000), workers=3) as attempt:
        attempt.wait_size(3)
        survivor = attempt.service.pids()[0]
        for number in range(KILLS + 1):
            attempt.wait_step(attempt.service.last.step + 10)
            if number in (0, 1, 5, 10, 15, KILLS):
                print(
                    f"after {number} kills: worker {footprint(survivor)}; controller {footprint(attempt.process.pid)}"
                )
                sys.stdout.flush()
            if number < KILLS:
                _kill_last(attempt)
        told = [event.payload for event in attempt.service.events("recovered")]
        pauses = sorted(each["pause_s"] for each in told)
        print(f"{len(told)} recoveries, pause {pauses[len(pauses) // 2]:.2f} s (median), {pauses[-1]:.2f} s (longest)")
        print(f"redone steps: {[each['redone_steps'] for each in told]}, from { ({each['from'] for each in told}) }")
        held = survivor in attempt.service.pids()
        attempt.service.action = "cancel"
        attempt.ends("cancelled")
    return held


def _kill_last(attempt: Attempt) -> None:
    before = len(attempt.service.events("recovered"))
    os.kill(attempt.service.pids()[-1], signal.SIGKILL)
    attempt.service.wait(lambda: len(attempt.service.events("recovered")) > before, what="a recovery")
    attempt.wait_size(3)


def bits(bench: Bench) -> bool:
    same = True
    alone: dict[int, float] = {}
    for stage in range(4):
        spec = {**bench.spec(stage=stage, steps=STEPS), "deterministic": True}
        if not alone:
            bench.hurry()
            with bench.attempt(spec, workers=1) as attempt:
                attempt.ends("succeeded")
            alone = attempt.service.curve()
            bench.pace(0.05)
        with bench.attempt(spec, workers=SIZES[0]) as attempt:
            for size in SIZES:
                attempt.scale(size)
                attempt.wait_step(attempt.service.last.step + 10)
            bench.hurry()
            attempt.ends("succeeded")
        resized = [(e.step, e.payload["from"], e.payload["to"]) for e in attempt.service.events("resized")]
        curve = attempt.service.curve()
        equal = curve == alone and sorted(curve) == list(range(1, STEPS + 1))
        print(f"stage {stage}: {'the same bits' if equal else 'OTHER BITS'} over {len(curve)} steps, resized {resized}")
        sys.stdout.flush()
        same &= equal
    return same


def main(what: str) -> int:
    torch.set_num_threads(1)
    os.environ["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryDirectory(prefix="el-", dir="/tmp") as folder, ray_head(Path(folder, "ray")) as address:
        held = {"kills": kills, "bits": bits}[what](Bench(address, Path(folder)))
    print("held" if held else "BROKEN")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
