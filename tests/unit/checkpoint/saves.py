"""A small model's state, saved and read by as many fake ranks as a test likes."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tests.fakes.memory_engine import MemoryEngine, Rule
from tests.unit.layout.shards import flat
from workers.checkpoint.manifest import Manifest
from workers.checkpoint.parts import parts_of
from workers.checkpoint.reader import read_into
from workers.checkpoint.store import Store
from workers.checkpoint.writer import FileReport, publish, write_rank
from workers.engine.states import StateKind, TensorMeta

JOB = "job-1"
BLOCK_BYTES = 256
METAS = {
    "table": TensorMeta(shape=(23, 7), dtype="float32"),
    "bias": TensorMeta(shape=(13,), dtype="bfloat16"),
    "scale": TensorMeta(shape=(), dtype="float32"),
    "nothing": TensorMeta(shape=(0, 4), dtype="float32"),
    "frozen": TensorMeta(shape=(5,), dtype="float32", trainable=False),
}
BUFFERS = {
    "steps": torch.tensor(2**40 + 1),
    "mask": torch.tensor([True, False, True]),
    "mean": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3),
    "empty": torch.empty(0, 3),
}
SCALARS = {"steps": {"table": 7, "bias": 6}, "loss_scale": 1024.0}


def engines(
    world_size: int, rule: Rule = flat, *, seed: int | None = None, metas: Mapping[str, TensorMeta] = METAS, **options
) -> list[MemoryEngine]:
    """One engine per rank; with a seed, filled and with scalars and buffers."""
    options = {"buffers": BUFFERS, **options}
    group = [MemoryEngine(metas, rule=rule, rank=rank, world_size=world_size, **options) for rank in range(world_size)]
    for engine in group:
        if seed is not None:
            engine.fill(seed)
            engine.load_scalars(SCALARS)
        else:
            for buffer in engine.buffers().values():
                buffer.zero_()
    return group


def write(store: Store, group: list[MemoryEngine], *, step: int, attempt: int = 1) -> list[FileReport]:
    return [
        write_rank(
            store,
            job=JOB,
            step=step,
            attempt=attempt,
            rank=rank,
            world_size=len(group),
            parts=parts_of(engine, rank=rank),
            block_bytes=BLOCK_BYTES,
        )
        for rank, engine in enumerate(group)
    ]


def save(store: Store, group: list[MemoryEngine], *, step: int, attempt: int = 1) -> Manifest:
    return published(store, write(store, group, step=step, attempt=attempt), step=step, attempt=attempt)


def published(store: Store, reports: list[FileReport], *, step: int, attempt: int = 1) -> Manifest:
    return publish(
        store,
        job=JOB,
        step=step,
        attempt=attempt,
        samples=step * 32,
        spec_digest="d",
        reports=reports,
        scalars=SCALARS,
        extra={"note": "é"},
    )


def load(store: Store, group: list[MemoryEngine], manifest: Manifest) -> None:
    for rank, engine in enumerate(group):
        read_into(engine, rank=rank, manifest=manifest, store=store)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit-equal, NaN included."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(-9e9), b.nan_to_num(-9e9))


def assert_same_state(found: list[MemoryEngine], expected: list[MemoryEngine]) -> None:
    for mine, other in zip(found, expected, strict=True):
        for (kind, name), values in other.state().items():
            if METAS[name].trainable or kind is StateKind.MASTER:
                assert same(mine.state()[kind, name], values), (kind, name)
        assert mine.scalars() == other.scalars()
        for name, buffer in other.buffers().items():
            assert same(mine.buffers()[name], buffer), name
