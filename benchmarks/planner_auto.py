"""What `auto` chooses for random specs and budgets, tried: each choice is built and trains in the memory it was chosen
for, and where nothing fits the cheapest choice is seen to fail in what could be used.

A rank may hold as much data as before the model was there, and the budget: the kernel refuses more (RLIMIT_DATA). A
budget that the cheapest choice misses by less than a prediction may be off tells nothing and is drawn again.
`python -m benchmarks.planner_auto [--count 30] [--seed 1]`; some ten seconds each.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import random
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import results
from benchmarks.planner import ACCUMULATED, CPU, PEAK_WITHIN, train
from service.domain.choice import OFFLOAD, Room, choose
from service.domain.parsing import parse
from service.domain.planning import plan_spec, rank_bytes
from service.domain.profile import profile_of
from service.domain.spec import JobSpec
from service.domain.worker_memory import MARGIN, WorkerMemory
from tests.claims.ranks import on_ranks, world_group
from workers.worker.assemble import build_engine, draw_model

# What a process may need beside tensors once it trains: sockets, stacks of threads, the arenas of malloc.
ALLOWANCE_BYTES = 12 * 2**20
MMAP_THRESHOLD = -3
SHORT_OF_MEMORY = ("can't allocate memory", "MemoryError", "bad_alloc", "Cannot allocate memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A spec with auto in it, the memory of a worker, and what was made of it."""

    spec: JobSpec
    asked: str
    numel: int
    capacity_bytes: int
    needs_bytes: int
    fits: bool

    @property
    def said(self) -> str:
        if not self.fits:
            return "nothing fits"
        return f"stage {self.spec.stage}, offload {self.spec.offload.optimizer}"

    @property
    def budget_bytes(self) -> int:
        """Where it fits, its worker's memory; else what a plan may use of it."""
        return self.capacity_bytes if self.fits else int(MARGIN * self.capacity_bytes)

    @property
    def tells(self) -> bool:
        short = self.needs_bytes - self.budget_bytes
        return self.fits or short > ALLOWANCE_BYTES + PEAK_WITHIN * self.needs_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """as_said: it trained where it was to fit, and ran out of memory where it was not. how: what failed, if any did."""

    said: str
    capacity_bytes: int
    needs_bytes: int
    as_said: bool
    how: str


# ---- cases -----------------------------------------------------------------------------------------------------------


def cases(dice: random.Random) -> Iterator[Case]:
    """Budgets between what hardly holds the least choice and what holds any."""
    while True:
        parsed = parse(_document(dice))
        profile = profile_of(parsed.spec)
        assert profile is not None
        needs = sorted(
            WorkerMemory(device_bytes=0).needed(choice.bytes_by_kind)
            for choice in plan_spec(parsed.spec, memory=None).choices
        )
        memory = WorkerMemory(device_bytes=int(dice.uniform(0.6 * needs[0], 1.2 * needs[-1]) / MARGIN))
        spec, _ = choose(parsed.spec, parsed.wishes, Room(profile_of=profile_of, memory=memory))
        kinds = rank_bytes(spec, profile, stage=int(spec.stage), workers=spec.workers.max)
        case = Case(
            spec=spec,
            asked="stage and offload" if OFFLOAD in parsed.wishes else "stage",
            numel=profile.numel,
            capacity_bytes=memory.device_bytes,
            needs_bytes=memory.needed(kinds),
            fits=memory.holds(kinds),
        )
        if case.tells:
            yield case


def _document(dice: random.Random) -> dict[str, Any]:
    heads = dice.choice([4, 8])
    return {
        "model": {
            "name": "gpt",
            "layers": dice.randint(2, 6),
            "width": 64 * dice.randint(4, 9) // heads * heads,
            "heads": heads,
            "vocab": dice.choice([256, 2048, 8192]),
            "context": 128,
        },
        "stage": "auto",
        "offload": dice.choice(["none", "auto", "auto"]),
        "precision": "fp32",
        "workers": dice.randint(1, 3),
        "training": {
            "batch_size": 24,
            "micro_batch_size": dice.choice([1, 2, 4]),
            "seq_len": dice.choice([64, 128]),
            "activation_checkpointing": dice.random() < 0.3,
        },
    }


# ---- one rank --------------------------------------------------------------------------------------------------------


def tried(rank: int, world: int, spec: JobSpec, budget_bytes: int) -> str:
    """Two steps in the budget; empty, or how they failed."""
    # Freed memory goes back at once, so that what is held is what tensors hold.
    ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 64 * 1024)
    model = spec.model.model_copy(update={"layers": 1, "width": 64, "vocab": 256})  # type: ignore[union-attr]
    # What is imported and started once is there before the budget counts.
    _steps(spec.model_copy(update={"model": model}), rank)
    gc.collect()
    try:
        with _at_most(_data_bytes() + budget_bytes + ALLOWANCE_BYTES):
            _steps(spec, rank)
    except (RuntimeError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"[:500]
    return ""


def _steps(spec: JobSpec, rank: int) -> None:
    """As a worker begins: the model has no memory before the engine gives it some."""
    drawn = draw_model(spec)
    training, vocab = spec.training, drawn.model.get_parameter("tokens.weight").shape[0]
    batches = [torch.randint(vocab, (training.micro_batch_size, training.seq_len + 1)) for _ in range(ACCUMULATED)]
    with TemporaryDirectory() as folder:
        engine = build_engine(drawn.model, world_group(), spec, CPU, folder=Path(folder))
        drawn.start(engine, rank=rank)
        for _ in range(2):
            train(engine, batches)


@contextmanager
def _at_most(size_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _data_bytes() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    return int(line.split()[1]) * 1024


# ---- the table -------------------------------------------------------------------------------------------------------


def trial(case: Case) -> Trial:
    try:
        failures = [each for each in on_ranks(case.spec.workers.max, tried, case.spec, case.budget_bytes) if each]
    except AssertionError as error:
        # A rank was ended where nothing can be caught.
        failures = [str(error)]
    short = [each for each in failures if any(mark in each for mark in SHORT_OF_MEMORY)]
    return Trial(
        said=case.said,
        capacity_bytes=case.capacity_bytes,
        needs_bytes=case.needs_bytes,
        as_said=not failures if case.fits else bool(short),
        how=next(iter([*short, *failures]), ""),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    table, trials = Table("spec", "auto", "memory", "said", "needs", "and it"), dict[str, Trial]()
    for number, case in zip(range(arguments.count), cases(random.Random(arguments.seed)), strict=False):
        done = trials[str(number)] = trial(case)
        row = [
            f"{number}: {case.numel / 1e6:.1f}M on {case.spec.workers.max}",
            case.asked,
            f"{case.capacity_bytes / 2**20:.0f}",
            case.said,
            f"{case.needs_bytes / 2**20:.0f}",
            f"{'trained' if not done.how else done.how[:60]}{'' if done.as_said else ': NOT AS SAID'}",
        ]
        print(*row, sep=" | ", flush=True)
        table.add_row(*row)
        figures = {name: asdict(each) for name, each in trials.items()}
        results.write("planner_auto", settings=vars(arguments), figures=figures)
    Console(width=160).print(table)
    kept = sum(each.as_said for each in trials.values())
    refused = sum(each.said == "nothing fits" for each in trials.values())
    print(f"{kept} of {len(trials)} as said, {refused} of them that nothing fits; MiB of one rank")
    return 0 if kept == len(trials) else 1


if __name__ == "__main__":
    sys.exit(main())
