"""State moves between stages and worlds through export and load alone, bit for bit."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor, nn

from tests.unit.engine.groups import Seat, engine_at
from workers.engine.precision import Precision
from workers.engine.states import StateKind
from workers.engine.units import UnitRule, group_units
from workers.engine.zero.engine import ZeroEngine
from workers.engine.zero.unit import layout, plan_of


class Scattered(nn.Module):
    """Tensors of random shapes, some empty, some frozen, one tied, in a random number of blocks."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.blocks = nn.ModuleList(self._block() for _ in range(self.rng.randrange(4)))
        self.tensors = self._tensors()
        if len(self.blocks):
            self.tensors.append(next(self.blocks.parameters()))

    def _block(self) -> nn.Module:
        block = nn.Module()
        block.tensors = self._tensors()
        return block

    def _tensors(self) -> nn.ParameterList:
        shapes = [
            [self.rng.randrange(6) for _ in range(self.rng.randrange(4))] for _ in range(self.rng.randrange(1, 5))
        ]
        return nn.ParameterList(
            nn.Parameter(torch.randn(shape), requires_grad=self.rng.random() < 0.8) for shape in shapes
        )


def engines(seed: int, stage: int, world: int, rule: UnitRule, precision: Precision) -> list[ZeroEngine]:
    return [
        engine_at(Scattered(seed), Seat(rank, world), stage=stage, units=rule, precision=precision)
        for rank in range(world)
    ]


def whole(ranks: list[ZeroEngine]) -> dict[tuple[StateKind, str], Tensor]:
    """Every tensor of every kind, put together from all ranks; what nobody holds is NaN."""
    metas = ranks[0].tensors()
    state = {
        (kind, name): torch.full((meta.numel,), torch.nan) for kind in ranks[0].kinds() for name, meta in metas.items()
    }
    for rank, engine in enumerate(ranks):
        for piece in engine.layout().of(rank):
            for kind in engine.kinds():
                part = state[kind, piece.tensor][piece.interval.start : piece.interval.stop]
                part.copy_(engine.export(kind, piece))
    return state


def move(state: dict[tuple[StateKind, str], Tensor], ranks: list[ZeroEngine]) -> None:
    for rank, engine in enumerate(ranks):
        for piece in engine.layout().of(rank):
            for kind in engine.kinds():
                engine.load(kind, piece, state[kind, piece.tensor][piece.interval.start : piece.interval.stop])


def rule_of(rng: random.Random) -> UnitRule:
    return UnitRule(min_params=rng.randrange(1, 60)) if rng.random() < 0.3 else UnitRule()


@pytest.mark.parametrize("seed", range(40))
def test_a_random_model_survives_any_chain_of_stages_and_worlds(seed: int) -> None:
    rng = random.Random(seed)
    precision = Precision(params=rng.choice([torch.float32, torch.bfloat16]))
    ranks = engines(seed, 0, 1, UnitRule(), precision)
    metas = ranks[0].tensors()
    # Values that bf16 holds exactly: a frozen tensor rests in the dtype that it computes in.
    start = {
        (kind, name): torch.randint(-99, 99, (meta.numel,)).float()
        if meta.trainable or kind is StateKind.MASTER
        else torch.zeros(meta.numel)
        for kind in ranks[0].kinds()
        for name, meta in metas.items()
    }
    move(start, ranks)
    for _ in range(4):
        state = whole(ranks)
        assert all(torch.equal(state[key], start[key]) for key in start)
        ranks = engines(seed, rng.randrange(4), rng.randrange(1, 8), rule_of(rng), precision)
        move(state, ranks)


@pytest.mark.parametrize("stage", range(4))
def test_the_layout_of_any_world_is_known_without_a_group(stage: int) -> None:
    model = Scattered(3)
    units = [plan_of(grouping, lambda dtype: dtype) for grouping in group_units(model, UnitRule())]
    for world in range(1, 6):
        engine = engine_at(Scattered(3), Seat(0, world), stage=stage)
        assert engine.layout() == layout(units, stage=stage, world=world)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_sharded_world_holds_every_element_once(stage: int) -> None:
    engine = engine_at(Scattered(4), Seat(0, 3), stage=stage)
    held = [piece.numel for _, piece in engine.layout()]
    assert sum(held) == sum(meta.numel for meta in engine.tensors().values())
