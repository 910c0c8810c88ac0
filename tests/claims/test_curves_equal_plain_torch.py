"""Claim: stage 0-3 with 1, 2, 3 and 4 workers train as one process of plain torch does, whatever the split."""

from __future__ import annotations

import pytest
import torch

from tests.claims.ranks import on_ranks, world_group
from tests.claims.training import gpt, plain_curve, train_step, zero_engine

STEPS = 30


@pytest.fixture(scope="module")
def reference() -> list[tuple[float, float]]:
    return plain_curve(gpt(), STEPS)


def _curves(rank: int, world: int) -> dict[int, list[tuple[float, float]]]:
    curves = {}
    for stage in range(4):
        engine = zero_engine(gpt(), world_group(), stage=stage)
        curves[stage] = [train_step(engine, step, rank=rank, world=world) for step in range(1, STEPS + 1)]
    return curves


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_every_stage_gives_the_curve_of_one_plain_process(world: int, reference: list[tuple[float, float]]) -> None:
    """Five micro-batches never divide evenly, so some ranks always join with nothing."""
    for curves in on_ranks(world, _curves):
        for curve in curves.values():
            torch.testing.assert_close(torch.tensor(curve), torch.tensor(reference), rtol=1e-5, atol=0)
