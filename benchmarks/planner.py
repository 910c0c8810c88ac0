"""What the planner says beside what ranks hold and how long they take: stages x offload x workers x models, in real
processes on CPUs.

Model states are the engine's own count between steps; the peak is what torch's allocator handed out in the second step
on top of what was alive before it; the time is the shorter of two more steps, beside what the plan makes of the rates
in `planner_rates.py`. `python -m benchmarks.planner [--models ...] [--workers ...]`; a quarter of an hour. A group of
cells is in `results/planner.json` as soon as it is there; `--resume` measures what is not in it yet.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import results
from benchmarks.planner_rates import surveyed
from service.domain.batching import micro_batches
from service.domain.choice import Room, choice_of
from service.domain.hardware import Rates
from service.domain.parsing import parse_spec
from service.domain.planning import STATES, rank_bytes
from service.domain.profile import Profile, described, profile_of
from service.domain.spec import JobSpec
from service.domain.speed import step_time
from tests.claims.ranks import on_ranks, world_group
from workers.engine.protocol import Engine
from workers.worker import probes
from workers.worker.assemble import build_engine, build_loader, build_model
from workers.worker.describe import describe

CPU = torch.device("cpu")
HERE = "benchmarks.planner_models"
STATES_WITHIN, PEAK_WITHIN = 0.02, 0.05
IMAGES = {"python": f"{HERE}:images"}
# Of each rank two micro-batches make a step: more of them hold no more.
ACCUMULATED = 2
MODELS: dict[str, dict[str, Any]] = {
    "gpt-small": {"model": "gpt-small", "training": {"micro_batch_size": 1, "seq_len": 128}},
    "gpt-medium": {"model": "gpt-medium", "training": {"micro_batch_size": 1, "seq_len": 64}},
    "convnet": {"model": {"python": f"{HERE}:ConvNet"}, "data": IMAGES, "training": {"micro_batch_size": 2}},
    "tied, half frozen": {
        "model": {"python": f"{HERE}:tuned"},
        "training": {"micro_batch_size": 1, "seq_len": 128},
    },
}
# Rows of the matrices of a micro-batch; of the images those of one block's positions.
ROWS = {"gpt-small": 128, "gpt-medium": 64, "convnet": 128, "tied, half frozen": 128}
OFFLOADS = ("none", "cpu")


class Found(NamedTuple):
    """Bytes that one rank holds between steps, and at most in one; seconds of a step."""

    states: int
    peak: int
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Of one rank, said and found."""

    model: str
    stage: int
    offload: str
    workers: int
    states: tuple[int, int]
    peak: tuple[int, int]
    step_s: tuple[float, float]

    @property
    def name(self) -> str:
        return _name(self.model, self.stage, self.offload, self.workers)

    @property
    def off(self) -> dict[str, float]:
        return {of: getattr(self, of)[0] / getattr(self, of)[1] - 1 for of in ("states", "peak", "step_s")}

    @property
    def holds(self) -> bool:
        return abs(self.off["states"]) <= STATES_WITHIN and abs(self.off["peak"]) <= PEAK_WITHIN


def _name(model: str, stage: int, offload: str, workers: int) -> str:
    return f"{model}: stage {stage}, offload {offload}, {workers} workers"


def group(model: str, workers: int, *, precision: str) -> Iterator[Cell]:
    """Every stage and offload of one model on so many workers, in the same processes one after the other."""
    specs = [_spec(model, workers, stage, offload, precision) for stage in (0, 1, 2, 3) for offload in OFFLOADS]
    (rates, *_) = on_ranks(workers, surveyed, ROWS[model])
    found = on_ranks(workers, measured, specs)
    profiles = profiles_of(specs)
    for number, spec in enumerate(specs):
        states, peak = said_bytes(spec, profiles[number])
        of_ranks = [each[number] for each in found]
        yield Cell(
            model=model,
            stage=int(spec.stage),
            offload=spec.offload.optimizer,
            workers=workers,
            states=(states, max(each.states for each in of_ranks)),
            peak=(peak, max(each.peak for each in of_ranks)),
            step_s=(said_s(spec, profiles[number], rates), max(each.step_s for each in of_ranks)),
        )


def _spec(model: str, workers: int, stage: int, offload: str, precision: str) -> JobSpec:
    training = MODELS[model]["training"]
    batch = ACCUMULATED * training["micro_batch_size"] * workers
    how = {"stage": stage, "offload": offload, "precision": precision, "workers": workers}
    return parse_spec({**MODELS[model], **how, "training": {**training, "batch_size": batch}})


# ---- what the plan says --------------------------------------------------------------------------------------------


def profiles_of(specs: list[JobSpec]) -> list[Profile]:
    """Of a model that is known from its spec, or as it is described."""
    descriptions: dict[str, Any] = {}
    return [profile_of(spec) or described(spec, _described(spec, descriptions)) for spec in specs]


def said_bytes(spec: JobSpec, profile: Profile) -> tuple[int, int]:
    """States and peak."""
    kinds = rank_bytes(spec, profile, stage=int(spec.stage), workers=spec.workers.max)
    sizes = {kind: sum(tiers.values()) for kind, tiers in kinds.items()}
    return sum(sizes[kind] for kind in STATES), sum(sizes.values())


def said_s(spec: JobSpec, profile: Profile, rates: Rates) -> float:
    choice = choice_of(spec, Room(profile_of=lambda _: profile, memory=None))
    assert choice is not None
    told = step_time(spec, profile, choice, rates)
    return float("nan") if told is None else told.total_s


def _described(spec: JobSpec, known: dict[str, Any]) -> Any:
    key = spec.model_dump_json(include={"model", "units", "precision", "training"})
    if key not in known:
        with TemporaryDirectory() as folder:
            known[key] = describe(spec, cache_folder=Path(folder))
    return known[key]


# ---- one rank ------------------------------------------------------------------------------------------------------


def measured(rank: int, world: int, specs: list[JobSpec]) -> list[Found]:
    with TemporaryDirectory() as folder:
        return [_measured(spec, rank, world, Path(folder)) for spec in specs]


def built(spec: JobSpec, rank: int, world: int, folder: Path) -> tuple[Engine, list[Any]]:
    """The engine, and the micro-batches of a step."""
    model, loader, training = build_model(spec), build_loader(spec, cache_folder=folder), spec.training
    engine = build_engine(model, world_group(), spec, CPU, folder=folder)
    groups = micro_batches(step=1, batch_size=training.batch_size, micro_batch_size=training.micro_batch_size)
    return engine, [loader.batch(group) for group in groups[rank::world][:ACCUMULATED]]


def _measured(spec: JobSpec, rank: int, world: int, folder: Path) -> Found:
    before = _bytes_alive()
    engine, batches = built(spec, rank, world, folder)
    inputs = _bytes_alive() - before - _bytes_of(engine)
    train(engine, batches)
    alive = _bytes_alive() - before - inputs
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as record:
        train(engine, batches)
    memory = probes.memory(engine, CPU, activations_bytes=0)
    states = sum(int(memory[f"mem_{kind}_bytes"]) for kind in STATES)
    return Found(states=states, peak=alive + _rise(record), step_s=min(_timed(engine, batches) for _ in range(2)))


def train(engine: Engine, batches: list[Any]) -> None:
    for number, batch in enumerate(batches):
        engine.micro_step(batch, weight=1 / len(batches), last=number == len(batches) - 1)
    engine.step(lr_scale=1.0, tally=[0.0])


def _timed(engine: Engine, batches: list[Any]) -> float:
    torch.distributed.barrier()
    began = time.perf_counter()
    train(engine, batches)
    return time.perf_counter() - began


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


def line(cell: Cell) -> list[str]:
    told = [cell.model, str(cell.stage), cell.offload, str(cell.workers)]
    for of in ("states", "peak"):
        told += [*(f"{size / 2**20:.1f}" for size in getattr(cell, of)), f"{cell.off[of]:+.1%}"]
    told.append("holds" if cell.holds else "misses")
    return [*told, *(f"{seconds * 1000:.0f}" for seconds in cell.step_s), f"{cell.off['step_s']:+.0%}"]


def show(found: Mapping[str, Cell]) -> None:
    table = Table(*("model", "stage", "offload", "workers", "states said", "found", "off", "peak said", "found", "off"))
    for head in ("", "step ms said", "found", "off"):
        table.add_column(head)
    for cell in found.values():
        table.add_row(*line(cell))
    Console(width=160).print(table)
    for model in dict.fromkeys(cell.model for cell in found.values()):
        cells = [cell for cell in found.values() if cell.model == model]
        for of in ("states", "peak", "step_s"):
            worst = max(cells, key=lambda cell: abs(cell.off[of]))
            print(f"worst {of}: {worst.off[of]:+.1%} {worst.name}")
    held = sum(cell.holds for cell in found.values())
    print(
        f"MiB of one rank. {held} of {len(found)} cells hold: states within {STATES_WITHIN:.0%}, peak within "
        f"{PEAK_WITHIN:.0%}"
    )


def known(precision: str) -> dict[str, Cell]:
    """The cells of a table that was stopped."""
    document = results.read("planner")
    if document is None or document["settings"]["precision"] != precision:
        return {}
    return {name: Cell(**figures) for name, figures in document["figures"].items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--workers", nargs="*", type=int, default=[1, 2, 3, 4])
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--resume", action="store_true", help="measure what the last table has not")
    arguments = parser.parse_args()
    found = known(arguments.precision) if arguments.resume else {}
    for model, workers in itertools.product(arguments.models, arguments.workers):
        if _name(model, 3, OFFLOADS[-1], workers) in found:
            continue
        for cell in group(model, workers, precision=arguments.precision):
            found[cell.name] = cell
            print(*line(cell), flush=True)
        results.write("planner", settings=vars(arguments), figures={name: asdict(each) for name, each in found.items()})
    show(found)
    return 0 if all(cell.holds for cell in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
