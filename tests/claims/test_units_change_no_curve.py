"""Claim: the loss does not depend on how parameters are put together into units."""

from __future__ import annotations

import torch

from tests.claims.ranks import on_ranks, world_group
from tests.claims.training import gpt, plain_curve, train_step, zero_engine
from workers.engine.units import UnitRule

STEPS = 5
RULES = {
    "the whole model": UnitRule(min_params=10**9),
    "two blocks": UnitRule(min_params=20_000),
    "blocks by name": UnitRule(layers=["Block"]),
    "blocks": UnitRule(),
    "linears by name": UnitRule(layers=["Linear"]),
    "every module": UnitRule(min_params=1),
}


def _curves(rank: int, world: int) -> tuple[list[list[tuple[float, float]]], list[int]]:
    curves, calls = [], []
    for stage in (0, 2, 3):
        for rule in RULES.values():
            engine = zero_engine(gpt(), world_group(), stage=stage, units=rule)
            curves.append([train_step(engine, step, rank=rank, world=world) for step in range(1, STEPS + 1)])
            calls.append(engine.traffic().calls)
    return curves, calls


def test_the_loss_does_not_depend_on_the_size_of_units() -> None:
    expected = torch.tensor(plain_curve(gpt(), STEPS))
    for curves, calls in on_ranks(2, _curves):
        assert len(set(calls[: len(RULES)])) >= 4, "the rules make other units"
        for curve in curves:
            torch.testing.assert_close(torch.tensor(curve), torch.tensor(curves[0]), rtol=1e-6, atol=0)
            torch.testing.assert_close(torch.tensor(curve), expected, rtol=1e-5, atol=0)
