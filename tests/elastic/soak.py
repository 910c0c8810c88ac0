"""`python -m tests.elastic.soak --minutes 60 --seed 1`: the chaos test for as long as is wished, one job per seed.

Exit status 1 where a promise was broken; the seed is told, to do the same again.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from tests.elastic.chaos import Chaos
from tests.elastic.cluster import Bench, ray_head
from tests.elastic.conftest import ROOT
from tests.elastic.history import broken_promises

FAULTS, STEPS = 25, 1200


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.elastic.soak", description="Chaos from seeds, for a while.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1, help="of the first job; the next has the next")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    os.environ["PYTHONPATH"] = str(ROOT)
    done: Counter[str] = Counter()
    failed: list[int] = []
    end, seed = time.monotonic() + 60 * arguments.minutes, arguments.seed
    with tempfile.TemporaryDirectory(prefix="el-", dir="/tmp") as folder, ray_head(Path(folder, "ray")) as address:
        bench = Bench(address, Path(folder))
        while time.monotonic() < end:
            if not _holds(bench, seed, done):
                failed.append(seed)
            seed += 1
    print(f"{done.total()} faults, seeds {arguments.seed} to {seed - 1}: {dict(done)}")
    print(f"broken with seeds {failed}" if failed else "no promise was broken")
    return 1 if failed else 0


def _holds(bench: Bench, seed: int, done: Counter[str]) -> bool:
    """The border of one seed: what fails it ends neither the next nor the count."""
    chaos = Chaos(bench, seed=seed, faults=FAULTS, steps=STEPS)
    try:
        broken = broken_promises(chaos.run())
    except Exception as error:
        broken = [f"{type(error).__name__}: {error}"]
    done.update(chaos.done)
    for each in broken:
        print(f"seed {seed}: {each}")
    print(f"seed {seed}: {chaos.done.total()} faults, {len(broken)} broken", flush=True)
    return not broken


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
