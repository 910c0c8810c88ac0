"""What the planner says beside what ranks hold: stages x offload x workers x models, in real processes on CPUs.

Model states are the engine's own count between steps; the peak is what torch's allocator handed out in the second step
on top of what was alive before it. `python -m benchmarks.planner [--models ...] [--workers ...]`; minutes.
"""

from __future__ import annotations

import argparse
import gc
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import results
from service.domain.batching import micro_batches
from service.domain.parsing import parse_spec
from service.domain.planning import STATES, rank_bytes
from service.domain.profile import described, profile_of
from service.domain.spec import JobSpec
from tests.claims.ranks import on_ranks, world_group
from workers.engine.protocol import Engine
from workers.worker import probes
from workers.worker.assemble import build_engine, build_loader, build_model
from workers.worker.describe import describe

CPU = torch.device("cpu")
HERE = "benchmarks.planner_models"
STATES_WITHIN, PEAK_WITHIN = 0.02, 0.05
IMAGES = {"python": f"{HERE}:images"}
MODELS: dict[str, dict[str, Any]] = {
    "gpt-small": {"model": "gpt-small", "training": {"batch_size": 8, "micro_batch_size": 1, "seq_len": 128}},
    "gpt-medium": {"model": "gpt-medium", "training": {"batch_size": 8, "micro_batch_size": 1, "seq_len": 64}},
    "convnet": {
        "model": {"python": f"{HERE}:ConvNet"},
        "data": IMAGES,
        "training": {"batch_size": 16, "micro_batch_size": 2},
    },
    "tied, half frozen": {
        "model": {"python": f"{HERE}:tuned"},
        "training": {"batch_size": 8, "micro_batch_size": 1, "seq_len": 128},
    },
}
OFFLOADS = ("none", "cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Bytes of one rank, said and found."""

    model: str
    stage: int
    offload: str
    workers: int
    states: tuple[int, int]
    peak: tuple[int, int]

    @property
    def states_off(self) -> float:
        return self.states[0] / self.states[1] - 1

    @property
    def peak_off(self) -> float:
        return self.peak[0] / self.peak[1] - 1


def cells(models: list[str], workers: list[int], *, precision: str) -> Iterator[Cell]:
    for name, world in itertools.product(models, workers):
        specs = [
            parse_spec({**MODELS[name], "stage": stage, "offload": offload, "precision": precision, "workers": world})
            for stage, offload in itertools.product((0, 1, 2, 3), OFFLOADS)
        ]
        found = on_ranks(world, measured, specs)
        said = predicted(specs)
        for number, spec in enumerate(specs):
            of_ranks = [each[number] for each in found]
            yield Cell(
                model=name,
                stage=int(spec.stage),
                offload=spec.offload.optimizer,
                workers=world,
                states=(said[number][0], max(states for states, _ in of_ranks)),
                peak=(said[number][1], max(peak for _, peak in of_ranks)),
            )


def predicted(specs: list[JobSpec]) -> list[tuple[int, int]]:
    """States and peak of each, by the plan of a model that is known from its spec, or as it is described."""
    descriptions: dict[str, Any] = {}
    figures = []
    for spec in specs:
        profile = profile_of(spec) or described(spec, _described(spec, descriptions))
        kinds = rank_bytes(spec, profile, stage=int(spec.stage), workers=spec.workers.max)
        sizes = {kind: sum(tiers.values()) for kind, tiers in kinds.items()}
        figures.append((sum(sizes[kind] for kind in STATES), sum(sizes.values())))
    return figures


def _described(spec: JobSpec, known: dict[str, Any]) -> Any:
    key = spec.model_dump_json(include={"model", "units", "precision", "training"})
    if key not in known:
        with TemporaryDirectory() as folder:
            known[key] = describe(spec, cache_folder=Path(folder))
    return known[key]


# ---- one rank ------------------------------------------------------------------------------------------------------


def measured(rank: int, world: int, specs: list[JobSpec]) -> list[tuple[int, int]]:
    with TemporaryDirectory() as folder:
        return [_measured(spec, rank, world, Path(folder)) for spec in specs]


def built(spec: JobSpec, rank: int, world: int, folder: Path) -> tuple[Engine, list[Any]]:
    """The engine, and two micro-batches of a step; more of them hold no more."""
    model, loader, training = build_model(spec), build_loader(spec, cache_folder=folder), spec.training
    engine = build_engine(model, world_group(), spec, CPU, folder=folder)
    groups = micro_batches(step=1, batch_size=training.batch_size, micro_batch_size=training.micro_batch_size)
    return engine, [loader.batch(group) for group in groups[rank::world][:2]]


def _measured(spec: JobSpec, rank: int, world: int, folder: Path) -> tuple[int, int]:
    before = _bytes_alive()
    engine, batches = built(spec, rank, world, folder)
    inputs = _bytes_alive() - before - _bytes_of(engine)
    train(engine, batches)
    alive = _bytes_alive() - before - inputs
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as record:
        train(engine, batches)
    memory = probes.memory(engine, CPU, activations_bytes=0)
    states = sum(int(memory[f"mem_{kind}_bytes"]) for kind in STATES)
    return states, alive + _rise(record)


def train(engine: Engine, batches: list[Any]) -> None:
    for number, batch in enumerate(batches):
        engine.micro_step(batch, weight=1 / len(batches), last=number == len(batches) - 1)
    engine.step(lr_scale=1.0, tally=[0.0])


def _rise(record: torch.profiler.profile) -> int:
    """The most that the allocator had given out since the record began, less what came back."""
    if record.profiler is None or record.profiler.kineto_results is None:
        raise RuntimeError("torch's profiler kept no record of memory")
    events: list[Any] = [each for each in record.profiler.kineto_results.events() if each.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(itertools.accumulate((int(event.nbytes()) for event in events), initial=0))


def _bytes_of(engine: Engine) -> int:
    footprint = engine.footprint()
    return sum(sum(tiers.values()) for tiers in footprint.by_kind.values()) + footprint.buffers_bytes


def _bytes_alive() -> int:
    gc.collect()
    storages = {}
    for each in gc.get_objects():
        if issubclass(type(each), torch.Tensor) and not each.is_meta:
            storages[each.untyped_storage()._cdata] = each.untyped_storage().nbytes()
    return sum(storages.values())


# ---- the table -----------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--workers", nargs="*", type=int, default=[1, 2, 3, 4])
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    arguments = parser.parse_args()
    table = Table("model", "stage", "offload", "workers", "states said", "found", "off", "peak said", "found", "off")
    found = []
    for cell in cells(arguments.models, arguments.workers, precision=arguments.precision):
        found.append(cell)
        states, peak = ([f"{size / 2**20:.1f}" for size in pair] for pair in (cell.states, cell.peak))
        off = [f"{cell.states_off:+.1%}", f"{cell.peak_off:+.1%}"]
        told = [cell.model, str(cell.stage), cell.offload, str(cell.workers)]
        table.add_row(*told, *states, off[0], *peak, off[1])
        print(*told, *states, off[0], *peak, off[1], flush=True)
    Console(width=140).print(table)
    worst = {name: max(abs(getattr(cell, f"{name}_off")) for cell in found) for name in ("states", "peak")}
    print(f"MiB of one rank; {len(found)} cells; worst: states {worst['states']:.1%}, peak {worst['peak']:.1%}")
    figures = {f"{c.model} {c.stage} {c.offload} {c.workers}": {"states": c.states, "peak": c.peak} for c in found}
    results.write("planner", settings=vars(arguments), figures=figures)


if __name__ == "__main__":
    main()
