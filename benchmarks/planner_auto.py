"""What `auto` chooses for random specs and budgets, tried: each choice trains in the memory it was chosen for, and
where nothing fits the cheapest choice is seen to fail in what could be used.

A rank may hold so much data as before its first step, less its states, and the budget: the kernel refuses more
(RLIMIT_DATA). `python -m benchmarks.planner_auto [--count 30] [--seed 1]`; minutes.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import resource
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import results
from benchmarks.planner import built, train
from service.domain.choice import OFFLOAD, Room, choose
from service.domain.offload import in_memory
from service.domain.parsing import parse
from service.domain.planning import MARGIN, plan_spec, rank_bytes
from service.domain.profile import profile_of
from service.domain.spec import JobSpec
from tests.claims.ranks import on_ranks

# What a process may need beside tensors once it trains: stacks of threads, sockets, the arenas of malloc.
ALLOWANCE_BYTES = 32 * 2**20
MMAP_THRESHOLD = -3


def drawn(dice: random.Random) -> tuple[JobSpec, set[str], int]:
    """A spec with auto in it, what was said to be auto beside the stage, and a budget between what hardly holds the
    least choice and what holds any."""
    heads = dice.choice([4, 8])
    model = {
        "name": "gpt",
        "layers": dice.randint(2, 6),
        "width": 64 * dice.randint(4, 9) // heads * heads,
        "heads": heads,
        "vocab": dice.choice([256, 2048, 8192]),
        "context": 128,
    }
    document: dict[str, Any] = {
        "model": model,
        "stage": "auto",
        "offload": dice.choice(["none", "auto", "auto"]),
        "precision": "fp32",
        "workers": dice.randint(1, 3),
        "training": {
            "batch_size": 12,
            "micro_batch_size": dice.choice([1, 2, 4]),
            "seq_len": dice.choice([64, 128]),
            "activation_checkpointing": dice.random() < 0.3,
        },
    }
    parsed = parse(document)
    choices = [each for each in plan_spec(parsed.spec, capacity_bytes=None).choices]
    needs = sorted(in_memory(each.bytes_by_kind) for each in choices)
    return parsed.spec, set(parsed.wishes), int(dice.uniform(0.7 * needs[0], 1.2 * needs[-1]) / MARGIN)


def tried(rank: int, world: int, spec: JobSpec, budget_bytes: int) -> str:
    """Two steps in the budget; empty, or how they failed."""
    # Freed memory goes back at once, so that what is held is what tensors hold.
    ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 64 * 1024)
    started = _data_bytes()
    with TemporaryDirectory() as folder:
        engine, batches = built(spec, rank, world, Path(folder))
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (started + budget_bytes + ALLOWANCE_BYTES, most))
        try:
            for _ in range(2):
                train(engine, batches)
        except (RuntimeError, MemoryError) as error:
            return f"{type(error).__name__}: {error}"[:300]
    return ""


def _data_bytes() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    return int(line.split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    dice, table, rows = random.Random(arguments.seed), Table("spec", "budget", "said", "needs", "ran"), []
    for number in range(arguments.count):
        spec, wishes, capacity = drawn(dice)
        chosen, report = choose(spec, wishes, Room(profile_of=profile_of, capacity_bytes=capacity))
        fits = not next(iter(report.values())).startswith("nothing fits")
        limit = capacity if fits else int(MARGIN * capacity)
        failures = [each for each in on_ranks(chosen.workers.max, tried, chosen, limit) if each]
        profile = profile_of(chosen)
        assert profile is not None
        needs = in_memory(rank_bytes(chosen, profile, stage=int(chosen.stage), workers=chosen.workers.max))
        said = f"stage {chosen.stage} offload {chosen.offload.optimizer}" if fits else "nothing fits"
        kept = fits != bool(failures)
        asked = "offload" if OFFLOAD in wishes else "stage"
        row = [
            f"{number}: {profile.numel / 1e6:.1f}M on {chosen.workers.max}, {asked} auto",
            *(f"{size / 2**20:.0f}" for size in (capacity,)),
            said,
            f"{needs / 2**20:.0f}",
            f"{'as said' if kept else 'NOT AS SAID'}: {failures[0][:60] if failures else 'trained'}",
        ]
        print(*row, flush=True)
        table.add_row(*row)
        rows.append({"said": said, "budget_bytes": capacity, "needs_bytes": needs, "as_said": kept, "how": failures})
    Console(width=150).print(table)
    print(f"{sum(bool(row['as_said']) for row in rows)} of {len(rows)} as said")
    results.write("planner_auto", settings=vars(arguments), figures={str(i): row for i, row in enumerate(rows)})


if __name__ == "__main__":
    main()
