"""Claim: a step of k micro-batches moves the elements that the planner says, counted at the collectives."""

from __future__ import annotations

import pytest

from service.domain.memory import elements_per_step
from tests.claims.ranks import on_ranks, world_group
from tests.claims.training import SHAPE, gpt, train_step, zero_engine
from workers.engine.states import Traffic
from workers.optimizers.config import OptimizerConfig

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
            expected = elements_per_step(numel=params, workers=world, stage=stage, micro_batches=k)
            assert elements == pytest.approx(expected, rel=0.02), f"stage {stage}"
            assert bytes_sent == pytest.approx(4 * expected * (world - 1) / world, rel=0.02), f"stage {stage}"


def _swapped(rank: int, world: int) -> list[int]:
    moved = []
    for stage in range(4):
        muon = OptimizerConfig(name="muon", lr=1e-3, momentum=0.95)
        engine = zero_engine(gpt(), world_group(), stage=stage, optimizer=muon)
        train_step(engine, 1, rank=rank, world=world, count=world)
        moved.append(engine.traffic().elements["swap"])
    return moved


@pytest.mark.parametrize("world", [2, 3])
def test_muon_moves_its_matrices_as_the_planner_says(world: int) -> None:
    matrices = SHAPE.layers * SHAPE.block_matrix_numel
    expected = [
        elements_per_step(numel=0, workers=world, stage=stage, micro_batches=1, matrix_numel=matrices)
        for stage in range(4)
    ]
    assert expected == [matrices, *[2 * matrices] * 3]
    assert on_ranks(world, _swapped) == [expected] * world
