"""Claim: between steps a rank holds the bytes of the ZeRO formulas, by its own account and by what exists."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch

from service.domain.memory import units_of, window_bytes
from service.domain.spec import PrecisionSpec
from tests.claims.ranks import on_ranks, world_group
from tests.claims.training import SHAPE, gpt, train_step, zero_engine
from workers.engine.precision import Precision

Formula = Callable[[float, int], float]

TWO_BYTES: tuple[Formula, ...] = (
    lambda p, n: 16 * p,
    lambda p, n: 4 * p + 12 * p / n,
    lambda p, n: 2 * p + 14 * p / n,
    lambda p, n: 16 * p / n,
)
# The parameter is its own master: 4 bytes of parameter, 4 of gradient, 8 of moments.
FOUR_BYTES: tuple[Formula, ...] = (
    lambda p, n: 16 * p,
    lambda p, n: 8 * p + 8 * p / n,
    lambda p, n: 4 * p + 12 * p / n,
    lambda p, n: 16 * p / n,
)
CASES = {
    "bf16": (Precision(params=torch.bfloat16), TWO_BYTES),
    "bf16 reduced in fp32": (Precision(params=torch.bfloat16, reduce=torch.float32), TWO_BYTES),
    "fp32": (Precision(), FOUR_BYTES),
}


def _bytes_alive() -> int:
    gc.collect()
    storages = {}
    for each in gc.get_objects():
        if type(each) in (torch.Tensor, torch.nn.Parameter):
            storage = each.untyped_storage()
            storages[storage._cdata] = storage.nbytes()
    return sum(storages.values())


def _held(rank: int, world: int, precision: Precision) -> list[tuple[int, int, int]]:
    return [_held_at(stage, rank, world, precision) for stage in range(4)]


def _held_at(stage: int, rank: int, world: int, precision: Precision) -> tuple[int, int, int]:
    before = _bytes_alive()
    model = gpt()
    params = sum(param.numel() for param in model.parameters())
    engine = zero_engine(model, world_group(), stage=stage, precision=precision)
    for step in (1, 2):
        train_step(engine, step, rank=rank, world=world, count=2)
    footprint = engine.footprint()
    accounted = sum(size for tiers in footprint.by_kind.values() for size in tiers.values())
    alive = _bytes_alive() - before - footprint.buckets_bytes - footprint.buffers_bytes
    assert footprint.gathered_bytes == 0
    planned = PrecisionSpec(params="bf16" if precision.params is torch.bfloat16 else "fp32")
    window = window_bytes(units_of(SHAPE), workers=world, stage=stage, precision=planned)["gathered_peak"]
    assert footprint.gathered_peak_bytes == pytest.approx(window, rel=0.001)
    return params, accounted, alive


@pytest.mark.parametrize(
    ("world", "case"), [(1, "bf16"), (2, "bf16"), (3, "bf16 reduced in fp32"), (2, "fp32"), (3, "fp32")]
)
def test_every_stage_holds_what_its_formula_says(world: int, case: str) -> None:
    precision, formulas = CASES[case]
    for held in on_ranks(world, _held, precision):
        for stage, (params, accounted, alive) in enumerate(held):
            expected = formulas[stage](params, world)
            assert accounted == pytest.approx(expected, rel=0.02), f"stage {stage}"
            assert alive == pytest.approx(expected, rel=0.02), f"stage {stage}"
