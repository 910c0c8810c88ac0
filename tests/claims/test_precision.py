"""Claim: what computes, travels and rests may each have its type; fp16 scales its loss, and all ranks agree on it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.claims.ranks import on_ranks, world_group
from tests.claims.training import gpt, plain_curve, train_step, zero_engine
from workers.engine.precision import Precision
from workers.engine.states import StateKind
from workers.optimizers.loss_scale import LossScaleRule

STEPS = 3
FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16
PAIRS = [(BF16, BF16), (BF16, FP32), (FP16, FP16), (FP16, FP32), (BF16, FP16)]
POISONED_STEP = 3


def _losses(rank: int, world: int) -> dict[tuple[int, torch.dtype, torch.dtype], list[float]]:
    losses = {}
    for stage in range(4):
        for params, reduce in PAIRS:
            # Small enough that no step of this model overflows: train_step takes none that is skipped.
            rule = LossScaleRule(initial=1024.0)
            precision = Precision(params=params, reduce=reduce, buffers=params, loss_scale=rule)
            engine = zero_engine(gpt(), world_group(), stage=stage, precision=precision)
            curve = [train_step(engine, step, rank=rank, world=world) for step in range(1, STEPS + 1)]
            losses[stage, params, reduce] = [loss for loss, _ in curve]
    return losses


def test_every_pair_of_types_with_an_fp32_master_stays_near_the_fp32_curve() -> None:
    """bf16 has three digits; a wrong weight, scale or micro-batch, or a stale parameter, is far outside of this."""
    wanted = torch.tensor([loss for loss, _ in plain_curve(gpt(), STEPS)])
    for losses in on_ranks(2, _losses):
        for where, curve in losses.items():
            torch.testing.assert_close(
                torch.tensor(curve), wanted, rtol=3e-3, atol=0, msg=lambda m, w=where: f"{w} {m}"
            )


def _poisoned(rank: int, world: int, stage: int) -> tuple[list[bool], list[float], dict[str, object], bool]:
    """An overflow of one gradient, on rank 1 alone, in step 3."""
    model = gpt()
    infinite = [1.0]
    model.blocks[1].mlp.down.weight.register_hook(lambda grad: grad * infinite[0])
    precision = Precision(params=FP16, reduce=FP32, loss_scale=LossScaleRule(initial=1024.0, growth_interval=2))
    engine = zero_engine(model, world_group(), stage=stage, precision=precision)
    skipped, scales = [], []
    untouched = True
    for step in range(1, 6):
        infinite[0] = torch.inf if step == POISONED_STEP and rank == 1 else 1.0
        before = _masters(engine, rank)
        engine.micro_step(_batch(step, rank), weight=1 / world, last=True)
        outcome = engine.step(lr_scale=1.0)
        skipped.append(outcome.skipped)
        scales.append(outcome.loss_scale)
        untouched &= outcome.skipped == all(map(torch.equal, before, _masters(engine, rank)))
    return skipped, scales, engine.scalars(), untouched


def _batch(step: int, rank: int) -> Tensor:
    return torch.randint(61, (2, 17), generator=torch.Generator().manual_seed(100 * step + rank))


def _masters(engine, rank: int) -> list[Tensor]:
    return [engine.export(StateKind.MASTER, piece).clone() for piece in engine.layout().of(rank)]


@pytest.mark.parametrize("stage", [0, 3])
def test_an_overflow_on_one_rank_skips_the_step_on_all(stage: int) -> None:
    first, *others = on_ranks(3, _poisoned, stage)
    skipped, scales, scalars, untouched = first
    assert skipped == [False, False, True, False, False]
    assert scales == [1024.0, 1024.0, 2048.0, 1024.0, 1024.0]
    assert set(scalars["steps"].values()) == {4}
    assert untouched
    assert all(other == first for other in others)
