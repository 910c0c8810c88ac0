"""Claim: what any number of workers saved at any stage, any number reads at any stage, bit for bit, in real engines."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tests.claims.ranks import on_ranks
from tests.claims.training import gpt, zero_engine
from workers.checkpoint.catalogue import inspect
from workers.checkpoint.manifest import Manifest
from workers.checkpoint.parts import parts_of
from workers.checkpoint.reader import read_into
from workers.checkpoint.store import LocalStore
from workers.checkpoint.writer import FileReport, publish, write_rank
from workers.engine.states import StateKind
from workers.engine.zero.engine import ZeroEngine

WORLD = 4
PLACES = list(itertools.product(range(4), range(1, WORLD + 1)))  # (stage, world size)


def whole(kind: StateKind, name: str, numel: int) -> Tensor:
    """Bits of every kind: what a step would leave is less varied."""
    generator = torch.Generator().manual_seed(sum(f"{kind}{name}".encode()))
    return torch.randn(numel, generator=generator)


def fill(engine: ZeroEngine, rank: int) -> None:
    for piece in engine.layout().of(rank):
        for kind in engine.kinds():
            values = whole(kind, piece.tensor, engine.tensors()[piece.tensor].numel)
            engine.load(kind, piece, values[piece.interval.start : piece.interval.stop])
    engine.load_scalars({"steps": {name: 3 + index for index, name in enumerate(engine.scalars()["steps"])}})
    engine.commit_load()


def blank(engine: ZeroEngine, rank: int) -> None:
    """What the load before left must not pass for what the next one read."""
    for piece in engine.layout().of(rank):
        for kind in engine.kinds():
            engine.load(kind, piece, torch.zeros(piece.numel))
    engine.load_scalars({"steps": dict.fromkeys(engine.scalars()["steps"], 0)})


def wrong(engine: ZeroEngine, rank: int) -> list[str]:
    found = []
    for piece in engine.layout().of(rank):
        for kind in engine.kinds():
            values = whole(kind, piece.tensor, engine.tensors()[piece.tensor].numel)
            if not torch.equal(engine.export(kind, piece), values[piece.interval.start : piece.interval.stop]):
                found.append(f"{kind} {piece}")
    expected = {name: 3 + index for index, name in enumerate(engine.scalars()["steps"])}
    return found + ([] if engine.scalars()["steps"] == expected else ["steps"])


def save(
    store: LocalStore,
    engine: ZeroEngine,
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


def _crossings(rank: int, world: int, folder: str) -> list[str]:
    store = LocalStore(Path(folder))
    groups = {size: dist.new_group(list(range(size))) for size in range(1, world + 1)}
    for step, (stage, size) in enumerate(PLACES):
        if rank < size:
            engine = zero_engine(gpt(), groups[size], stage=stage)
            fill(engine, rank)
            save(store, engine, groups[size], rank, step=step)
    dist.barrier()
    problems: list[str] = []
    for stage, size in PLACES:
        if rank < size:
            engine = zero_engine(gpt(seed=2), groups[size], stage=stage)
            for step, saved_at in enumerate(PLACES):
                manifest: Manifest = inspect(store, "j", step)
                blank(engine, rank)
                read_into(engine, rank=rank, manifest=manifest, store=store)
                engine.commit_load()
                problems += [f"{saved_at} -> {(stage, size)}: {line}" for line in wrong(engine, rank)]
    dist.barrier()
    return problems


def test_every_size_and_stage_reads_what_every_other_saved() -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert on_ranks(WORLD, _crossings, folder) == [[]] * WORLD
