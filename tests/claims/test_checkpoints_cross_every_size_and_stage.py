"""Claim: what any engine saved anywhere, any other reads, bit for bit: sizes, stages, engines, offload, precisions.

By default every place reads some of what the others saved, such that every pair of world sizes is met.
`ELASTANE_CROSSINGS=all` has each read everything of all: minutes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.claims.ranks import on_ranks
from tests.claims.training import OPTIMIZER, fsdp_engine, gpt, zero_engine
from workers.checkpoint.catalogue import inspect
from workers.checkpoint.parts import parts_of
from workers.checkpoint.reader import read_into
from workers.checkpoint.store import LocalStore
from workers.checkpoint.writer import FileReport, publish, write_rank
from workers.engine.placement import Placement
from workers.engine.precision import Precision
from workers.engine.protocol import Engine
from workers.engine.states import StateKind
from workers.optimizers.config import OptimizerConfig

WORLD = 4
IS_WHOLE = os.environ.get("ELASTANE_CROSSINGS") == "all"
PRECISIONS = {"fp32": Precision(), "bf16": Precision(params=torch.bfloat16, reduce=torch.float32)}
# (engine, stage, where the optimizer's state rests, where parameters rest)
KINDS: tuple[tuple[str, int, str, str], ...] = (
    *(("zero", stage, tier, "none") for stage in range(4) for tier in ("none", "cpu", "nvme")),
    ("zero", 3, "cpu", "cpu"),
    ("zero", 3, "nvme", "nvme"),
    *(("fsdp", stage, tier, tier) for stage in (0, 2, 3) for tier in ("none", "cpu")),
)
AVERAGED = OptimizerConfig(lr=OPTIMIZER.lr, betas=OPTIMIZER.betas, ema_decay=0.9)

pytestmark = pytest.mark.timeout(3600 if IS_WHOLE else 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a state lies while it is trained."""

    engine: str
    stage: int
    optimizer: str
    params: str
    precision: str
    world: int

    def build(self, group: dist.ProcessGroup, folder: Path, *, seed: int) -> Engine:
        options: dict[str, object] = {"precision": PRECISIONS[self.precision], "optimizer": AVERAGED}
        if self.engine == "fsdp":
            return fsdp_engine(gpt(seed), group, stage=self.stage, offload=self.optimizer == "cpu", **options)
        folder.mkdir(parents=True, exist_ok=True)
        tiers = {"optimizer": self.optimizer, "params": self.params}
        placement = Placement.of(torch.device("cpu"), **tiers, folder=folder)  # type: ignore[arg-type]
        return zero_engine(gpt(seed), group, stage=self.stage, placement=placement, **options)


def sites() -> tuple[Site, ...]:
    """Each kind at every size, or at one, dealt out in turns; so are the precisions."""
    found = []
    for number, (engine, stage, optimizer, params) in enumerate(KINDS):
        for world in range(1, WORLD + 1) if IS_WHOLE else [number % WORLD + 1]:
            kind = {"engine": engine, "stage": stage, "optimizer": optimizer, "params": params}
            found.append(Site(**kind, precision=("fp32", "bf16")[(number + world) // 2 % 2], world=world))
    return tuple(found)


def sources(reader: int, count: int) -> Iterator[int]:
    """Whose checkpoints a site reads; by fives, every size meets every other, for there are four."""
    return (writer for writer in range(count) if IS_WHOLE or (reader + writer) % 5 == 0)


def whole(kind: StateKind, name: str, numel: int) -> Tensor:
    """Bits of every kind: what a step would leave is less varied."""
    generator = torch.Generator().manual_seed(sum(f"{kind}{name}".encode()))
    return torch.randn(numel, generator=generator)


def age(name: str) -> int:
    return sum(name.encode()) % 97


def fill(engine: Engine, rank: int) -> None:
    for piece in engine.layout().of(rank):
        for kind in engine.kinds():
            values = whole(kind, piece.tensor, engine.tensors()[piece.tensor].numel)
            engine.load(kind, piece, values[piece.interval.start : piece.interval.stop])
    engine.load_scalars({"steps": {name: age(name) for name in engine.scalars()["steps"]}})
    engine.commit_load()


def blank(engine: Engine, rank: int) -> None:
    """What the load before left must not pass for what the next one read."""
    for piece in engine.layout().of(rank):
        for kind in engine.kinds():
            engine.load(kind, piece, torch.zeros(piece.numel))
    engine.load_scalars({"steps": dict.fromkeys(engine.scalars()["steps"], 0)})


def wrong(engine: Engine, rank: int) -> list[str]:
    found = []
    for piece in engine.layout().of(rank):
        for kind in engine.kinds():
            values = whole(kind, piece.tensor, engine.tensors()[piece.tensor].numel)
            if not torch.equal(engine.export(kind, piece), values[piece.interval.start : piece.interval.stop]):
                found.append(f"{kind} {piece}")
    expected = {name: age(name) for name in engine.scalars()["steps"]}
    return found + ([] if engine.scalars()["steps"] == expected else ["steps"])


def save(
    store: LocalStore,
    engine: Engine,
    group: dist.ProcessGroup,
    rank: int,
    *,
    step: int,
    extra: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    report = write_rank(
        store, job="j", step=step, attempt=1, rank=rank, world_size=group.size(), parts=parts_of(engine, rank=rank)
    )
    reports: list[FileReport | None] = [None] * group.size()
    dist.all_gather_object(reports, report, group=group)
    if rank == 0:
        publish(
            store,
            job="j",
            step=step,
            attempt=1,
            samples=0,
            spec_digest="",
            reports=[report for report in reports if report is not None],
            scalars=engine.scalars(),
            extra=dict(extra),
        )


def _crossings(rank: int, world: int, folder: str) -> tuple[int, list[str]]:
    """How many crossings this rank made, and what was not equal."""
    store, tiers = LocalStore(Path(folder)), Path(folder) / f"tiers-{rank}"
    groups = {size: dist.new_group(list(range(size))) for size in range(1, world + 1)}
    every = sites()
    for step, site in enumerate(every):
        if rank < site.world:
            engine = site.build(groups[site.world], tiers / str(step), seed=1)
            fill(engine, rank)
            save(store, engine, groups[site.world], rank, step=step)
    dist.barrier()
    problems, count = [], 0
    for number, site in enumerate(every):
        # A rank of few sites must not run so far ahead that the others seem dead to it.
        dist.barrier()
        if rank >= site.world:
            continue
        engine = site.build(groups[site.world], tiers / f"again-{number}", seed=2)
        for writer in sources(number, len(every)):
            blank(engine, rank)
            read_into(engine, rank=rank, manifest=inspect(store, "j", writer), store=store)
            engine.commit_load()
            problems += [f"{every[writer]} -> {site}: {line}" for line in wrong(engine, rank)]
            count += 1
    dist.barrier()
    return count, problems


def test_every_site_reads_what_every_other_saved() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = on_ranks(WORLD, _crossings, folder)
    print(f"{found[0][0]} crossings of {len(sites())} sites")
    assert [problems for _, problems in found] == [[]] * WORLD
    assert found[0][0] >= len(sites()) * 4
