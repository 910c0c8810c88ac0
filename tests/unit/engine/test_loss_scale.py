"""The loss scale, against torch's GradScaler and inside the engine."""

from __future__ import annotations

import random

import pytest
import torch

from tests.unit.engine.groups import Seat, engine_at
from tests.unit.engine.test_engine_alone import STAGES, batch, equal, net, state
from workers.engine.precision import Precision
from workers.engine.zero.engine import ZeroEngine
from workers.optimizers.loss_scale import LossScale, LossScaleRule

STATIC = LossScaleRule(initial=4096.0, minimum=4096.0, growth_interval=None)
GROWING = LossScaleRule(initial=4096.0, growth_interval=2)


def fp16(rule: LossScaleRule, reduce: torch.dtype = torch.float32) -> Precision:
    return Precision(params=torch.float16, reduce=reduce, loss_scale=rule)


def step(engine: ZeroEngine, number: int, factor: float = 1.0) -> tuple[float, bool, float]:
    for micro in range(2):
        engine.micro_step(batch(10 * number + micro) * factor, weight=0.5, last=micro == 1)
    outcome = engine.step(lr_scale=1.0)
    return outcome.grad_norm, outcome.skipped, outcome.loss_scale


def test_it_moves_as_torchs_grad_scaler_does() -> None:
    peer = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    ours = LossScale(LossScaleRule(initial=1024.0, growth_interval=3, minimum=2.0**-20))
    param = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([param], lr=0.0)
    choice = random.Random(4)
    for _ in range(60):
        overflowed = choice.random() < 0.3
        peer.scale(param.sum() * (torch.inf if overflowed else 1.0)).backward()
        peer.step(optimizer)
        peer.update()
        optimizer.zero_grad()
        ours.judge(overflowed=overflowed)
        assert ours.value == peer.get_scale()


def test_it_waits_for_as_many_overflows_as_it_was_told_and_again_after_it_has_grown() -> None:
    scale = LossScale(LossScaleRule(initial=8.0, growth_interval=2, hysteresis=2))
    values = []
    for overflowed in (True, True, True, False, False, True, True):
        scale.judge(overflowed=overflowed)
        values.append(scale.value)
    assert values == [8.0, 4.0, 2.0, 2.0, 4.0, 4.0, 2.0]


def test_an_overflow_is_excused_until_the_scale_is_at_its_least() -> None:
    scale = LossScale(LossScaleRule(initial=4.0, minimum=1.0))
    assert [scale.judge(overflowed=True) for _ in range(4)] == [True, True, False, False]
    assert not LossScale(None).judge(overflowed=True)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="initial >= minimum"):
        LossScaleRule(initial=0.5)


@STAGES
def test_the_norm_has_the_scale_of_its_own_backward_also_where_the_scale_grows(stage: int) -> None:
    """Powers of two change no digit: the growing scale must give the very numbers of the static one."""
    growing = engine_at(net(), Seat(), stage=stage, precision=fp16(GROWING), clip_norm=0.01)
    static = engine_at(net(), Seat(), stage=stage, precision=fp16(STATIC), clip_norm=0.01)
    outcomes = [(step(growing, number), step(static, number)) for number in range(5)]
    assert [ours[2] for ours, _ in outcomes] == [4096.0, 4096.0, 8192.0, 8192.0, 16384.0]
    assert [ours[0] for ours, _ in outcomes] == [theirs[0] for _, theirs in outcomes]
    assert equal(state(growing), state(static))
    plain = engine_at(net(), Seat(), stage=stage, clip_norm=0.01)
    for number, (ours, _) in enumerate(outcomes):
        assert ours[0] == pytest.approx(step(plain, number)[0], rel=0.02)


@STAGES
def test_an_overflow_touches_nothing_but_the_scale_and_training_goes_on(stage: int) -> None:
    engine = engine_at(net(), Seat(), stage=stage, precision=fp16(LossScaleRule(initial=2.0**24)))
    before = state(engine)
    skips = [step(engine, 1)[1] for _ in range(24)]
    # From a scale that no gradient fits under down to one that they do, and then no skip any more.
    assert skips[0]
    assert not skips[-1]
    assert skips == sorted(skips, reverse=True)
    assert engine.scalars()["steps"]["first.weight"] == skips.count(False)
    assert not equal(state(engine), before)


def test_the_scale_goes_on_where_the_state_was_saved() -> None:
    engine, other = (engine_at(net(), Seat(), precision=fp16(GROWING)) for _ in range(2))
    for number in range(3):
        step(engine, number)
    other.load_scalars(engine.scalars())
    assert other.scalars() == engine.scalars()
    assert other.scalars()["loss_scale"] == {"value": 8192.0, "good_steps": 1, "patience": 1}
    plain = engine_at(net(), Seat())
    plain.load_scalars(engine.scalars())
    assert "loss_scale" not in plain.scalars()


def test_what_travels_in_fp16_is_scaled_whatever_computes() -> None:
    assert Precision(reduce=torch.float16).scaling is not None
    assert Precision(params=torch.bfloat16).scaling is None
