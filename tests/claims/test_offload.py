"""Claim: wherever state rests, training ends like one plain process, with the bits of no offload at equal ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.claims.ranks import on_ranks, world_group
from tests.claims.training import gpt, plain_curve, train_step, zero_engine
from workers.engine.placement import Placement
from workers.engine.precision import Precision
from workers.engine.states import StateKind
from workers.engine.zero.engine import ZeroEngine

CPU = torch.device("cpu")
STEPS = 3
PLACES: dict[str, dict[str, Any]] = {
    "none": {},
    "cpu": {"optimizer": "cpu", "params": "cpu"},
    "nvme": {"optimizer": "nvme", "params": "nvme"},
    "half": {"optimizer": "nvme", "params": "nvme", "ratio": 0.5},
}
Run = tuple[list[tuple[float, float]], list[Tensor]]


def _masters(engine: ZeroEngine, rank: int) -> list[Tensor]:
    return [engine.export(StateKind.MASTER, piece).clone() for piece in engine.layout().of(rank)]


def _matrix(rank: int, world: int, folder: str) -> dict[tuple[int, int, torch.dtype, str], Run]:
    """(stage, micro-batches of a rank, dtype, place) -> the curve and this rank's masters at its end."""
    runs = {}
    for stage in range(4):
        for per_rank in (1, 3):
            for dtype in (torch.float32, torch.bfloat16):
                for name, place in PLACES.items():
                    engine = zero_engine(
                        gpt(),
                        world_group(),
                        stage=stage,
                        precision=Precision(params=dtype),
                        placement=Placement.of(CPU, folder=Path(folder), **place),
                    )
                    count = per_rank * world
                    curve = [train_step(engine, s, rank=rank, world=world, count=count) for s in range(1, STEPS + 1)]
                    runs[stage, per_rank, dtype, name] = curve, _masters(engine, rank)
    return runs


@pytest.mark.parametrize("world", [1, 2, 3])
def test_the_curve_is_that_of_one_plain_process_and_its_bits_are_those_of_no_offload(
    world: int, tmp_path: Path
) -> None:
    """k in {1, 3}: micro-batches after the first are neither dropped nor counted twice on their way to another tier."""
    references = {k: torch.tensor(plain_curve(gpt(), STEPS, count=k * world)) for k in (1, 3)}
    for runs in on_ranks(world, _matrix, str(tmp_path)):
        for (stage, k, dtype, place), (curve, masters) in runs.items():
            where = f"stage {stage}, k {k}, {dtype}, {place}"
            plain_place, plain_masters = runs[stage, k, dtype, "none"]
            assert curve == plain_place, where
            assert all(torch.equal(a, b) for a, b in zip(masters, plain_masters, strict=True)), where
            if dtype is torch.float32:
                torch.testing.assert_close(torch.tensor(curve), references[k], rtol=1e-5, atol=0)
