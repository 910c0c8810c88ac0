"""Claim: a step of k micro-batches moves 2P, 2P, (k+1)P and 3kP elements at stages 0-3, counted at the collectives."""

from __future__ import annotations

import pytest

from tests.claims.ranks import on_ranks, world_group
from tests.claims.training import gpt, train_step, zero_engine
from workers.engine.states import Traffic

STEPS = 3


def _total(traffic: Traffic) -> int:
    return sum(traffic.elements.values())


def _moved(rank: int, world: int, k: int) -> list[tuple[int, float, float]]:
    moved = []
    for stage in range(4):
        model = gpt()
        engine = zero_engine(model, world_group(), stage=stage)
        train_step(engine, 1, rank=rank, world=world, count=k * world)
        before = engine.traffic()
        for step in range(2, 2 + STEPS):
            train_step(engine, step, rank=rank, world=world, count=k * world)
        after = engine.traffic()
        params = sum(param.numel() for param in model.parameters())
        bytes_sent = (after.bytes_sent - before.bytes_sent) / STEPS
        moved.append((params, (_total(after) - _total(before)) / STEPS, bytes_sent))
    return moved


@pytest.mark.parametrize(("world", "k"), [(2, 1), (2, 3), (3, 2)])
def test_every_stage_moves_what_its_formula_says(world: int, k: int) -> None:
    for moved in on_ranks(world, _moved, k):
        for stage, (params, elements, bytes_sent) in enumerate(moved):
            expected = (2, 2, k + 1, 3 * k)[stage] * params
            assert elements == pytest.approx(expected, rel=0.02), f"stage {stage}"
            assert bytes_sent == pytest.approx(4 * expected * (world - 1) / world, rel=0.02), f"stage {stage}"
