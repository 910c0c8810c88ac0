"""Claim: each matrix is computed whole by one rank, whatever its parts, and every rank gets back what it holds."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.claims.ranks import on_ranks, world_group
from tests.claims.training import zero_engine
from workers.engine.zero.owners import Owners
from workers.optimizers.config import OptimizerConfig

SHAPES = ((5, 3), (1, 7), (16, 4), (4, 16), (2, 2))


class Matrices(nn.Module):
    """A block of odd matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.ParameterList(nn.Parameter(torch.randn(shape)) for shape in SHAPES)])


def _marked(matrix: Tensor) -> Tensor:
    """Each element tells where it stood in its matrix, and of which shape that was."""
    rows, columns = matrix.shape
    return matrix + 1000 * torch.arange(rows * columns).view(rows, columns) + 100_000 * rows


def _applied(rank: int, world: int) -> tuple[list[bool], list[int]]:
    right, computed = [], 0
    muon = OptimizerConfig(name="muon", momentum=0.95)
    for stage in range(4):
        torch.manual_seed(2)
        engine = zero_engine(Matrices(), world_group(), stage=stage, optimizer=muon)
        (flat,) = [flat for unit in engine._units for flat in unit.trainable]
        owners = Owners(flat, engine._collectives, sharded=stage > 0, load=[0] * world)
        whole = torch.arange(float(flat.full_numel))
        expected = torch.cat([_marked(view).flatten() for view in flat.views(whole)])
        calls: list[int] = []

        def function(matrix: Tensor, calls: list[int] = calls) -> Tensor:
            calls.append(matrix.numel())
            return _marked(matrix)

        mine = owners.apply(function, whole[flat.state.start : flat.state.stop])
        held = mine[: max(0, flat.plan.numel - flat.state.start)]
        right.append(torch.equal(held, expected[flat.state.start : flat.state.start + held.numel()]))
        computed = len(calls)
    return right, computed


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_every_matrix_is_computed_once_and_every_part_comes_back(world: int) -> None:
    results = on_ranks(world, _applied)
    assert all(all(right) for right, _ in results)
    assert sum(computed for _, computed in results) == len(SHAPES)
    assert all(computed for _, computed in results)
