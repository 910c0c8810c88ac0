"""The whole engine in a world of one: every stage, no process group."""

from __future__ import annotations

import gc
import math
import weakref

import pytest
import torch
from torch import Tensor, nn

from tests.unit.engine.groups import Seat, engine_at
from workers.engine.placement import Placement
from workers.engine.precision import Precision
from workers.engine.states import StateKind
from workers.engine.zero.collectives import Collectives, Pending
from workers.engine.zero.engine import ZeroEngine
from workers.layout.interval import Interval
from workers.layout.layout import Piece
from workers.optimizers.config import OptimizerConfig
from workers.tiers.protocol import StateKey

STAGES = pytest.mark.parametrize("stage", range(4))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 7)
        self.blocks = nn.ModuleList(nn.Linear(7, 7) for _ in range(3))
        self.fixed = nn.Parameter(torch.randn(7), requires_grad=False)
        self.register_buffer("seen", torch.zeros(2))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = torch.tanh(block(x))
        return (x * self.fixed).square().mean()


def net() -> Net:
    torch.manual_seed(5)
    return Net()


def batch(seed: int) -> Tensor:
    return torch.randn(4, 5, generator=torch.Generator().manual_seed(seed))


def train(engine: ZeroEngine, steps: range) -> None:
    for step in steps:
        for micro in range(2):
            engine.micro_step(batch(10 * step + micro), weight=0.5, last=micro == 1)
        engine.step(lr_scale=1.0)


def state(engine: ZeroEngine) -> dict[tuple[StateKind, Piece], Tensor]:
    return {
        (kind, piece): engine.export(kind, piece).clone() for kind in engine.kinds() for piece in engine.layout().of(0)
    }


def equal(one: dict[tuple[StateKind, Piece], Tensor], other: dict[tuple[StateKind, Piece], Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@STAGES
def test_it_trains_as_plain_torch_does(stage: int) -> None:
    plain, model = net(), net()
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    engine = engine_at(model, Seat(), stage=stage, clip_norm=0.01)
    for step in range(5):
        optimizer.zero_grad()
        for micro in range(2):
            (plain(batch(10 * step + micro)) / 2).backward()
            engine.micro_step(batch(10 * step + micro), weight=0.5, last=micro == 1)
        norm = nn.utils.clip_grad_norm_(plain.parameters(), 0.01).item()
        optimizer.step()
        assert engine.step(lr_scale=1.0).grad_norm == pytest.approx(norm, rel=1e-5)
    params = dict(plain.named_parameters())
    for piece in engine.layout().of(0):
        torch.testing.assert_close(engine.export(StateKind.MASTER, piece), params[piece.tensor].detach().reshape(-1))


@STAGES
@pytest.mark.parametrize("adjust", ["original", "match_rms_adamw"])
def test_hidden_matrices_move_as_under_torchs_muon_and_the_rest_as_under_its_adamw(stage: int, adjust: str) -> None:
    plain = net()
    named = [(name, param) for name, param in plain.named_parameters() if param.requires_grad]
    hidden = [param for name, param in named if name.startswith("blocks") and param.ndim == 2]
    rest = [param for _, param in named if all(param is not other for other in hidden)]
    peers = [
        torch.optim.Muon(hidden, lr=1e-2, weight_decay=0.1, adjust_lr_fn=adjust),
        torch.optim.AdamW(rest, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1),
    ]
    config = OptimizerConfig(name="muon", lr=1e-2, momentum=0.95, nesterov=True, adjust_lr=adjust)
    engine = engine_at(net(), Seat(), stage=stage, optimizer=config)
    for step in range(5):
        plain.zero_grad()
        plain(batch(step)).backward()
        engine.micro_step(batch(step), weight=1.0, last=True)
        for peer in peers:
            peer.step()
        engine.step(lr_scale=1.0)
    params = dict(plain.named_parameters())
    for piece in engine.layout().of(0):
        values = engine.export(StateKind.MASTER, piece)
        torch.testing.assert_close(values, params[piece.tensor].detach().reshape(-1), rtol=1e-5, atol=1e-6)
    kept = {str(kind): sum(tiers.values()) for kind, tiers in engine.footprint().by_kind.items()}
    matrices, others = (4 * sum(param.numel() for param in part) for part in (hidden, rest))
    assert (kept["momentum_buffer"], kept["exp_avg"], kept["exp_avg_sq"]) == (matrices, others, others)


@STAGES
def test_a_step_that_is_not_finite_touches_nothing_and_says_so(stage: int) -> None:
    engine = engine_at(net(), Seat(), stage=stage)
    train(engine, range(2))
    before, scalars = state(engine), engine.scalars()
    engine.micro_step(batch(1), weight=0.5, last=False)
    engine.micro_step(batch(2) * math.inf, weight=0.5, last=True)
    outcome = engine.step(lr_scale=1.0, tally=[2.0])
    assert outcome.skipped
    assert math.isnan(outcome.grad_norm)
    assert outcome.tally == (2.0,)
    assert equal(state(engine), before)
    assert engine.scalars() == scalars
    other = engine_at(net(), Seat(), stage=stage)
    train(other, range(2))
    train(engine, range(2, 4))
    train(other, range(2, 4))
    assert equal(state(engine), state(other))


@STAGES
def test_load_then_save_gives_the_same_content_and_the_same_future(stage: int) -> None:
    engine = engine_at(net(), Seat(), stage=stage)
    train(engine, range(3))
    other = engine_at(Net(), Seat(), stage=3 - stage)
    for (kind, piece), values in state(engine).items():
        other.load(kind, piece, values)
    other.load_scalars(engine.scalars())
    other.commit_load()
    assert equal(state(other), state(engine))
    assert other.scalars() == engine.scalars()
    train(engine, range(3, 6))
    train(other, range(3, 6))
    for key, values in state(engine).items():
        torch.testing.assert_close(state(other)[key], values)


@STAGES
def test_a_weight_of_zero_counts_for_nothing_even_where_it_is_not_finite(stage: int) -> None:
    engine, other = (engine_at(net(), Seat(), stage=stage) for _ in range(2))
    for each in (engine, other):
        each.micro_step(batch(1), weight=1.0, last=each is other)
    engine.micro_step(batch(2) * math.inf, weight=0.0, last=True)
    assert engine.step(lr_scale=1.0) == other.step(lr_scale=1.0)
    assert equal(state(engine), state(other))


@STAGES
def test_a_frozen_parameter_that_was_thawed_is_named_rather_than_forgotten(stage: int) -> None:
    model = net()
    engine = engine_at(model, Seat(), stage=stage)
    model.fixed.requires_grad_(True)
    engine.micro_step(batch(1), weight=1.0, last=True)
    with pytest.raises(RuntimeError, match="fixed"):
        engine.step(lr_scale=1.0)


def test_a_loss_that_is_no_scalar_is_refused() -> None:
    engine = engine_at(nn.Linear(5, 2), Seat())
    with pytest.raises(ValueError, match=r"\(4, 2\)"):
        engine.micro_step(batch(1), weight=1.0, last=True)


def test_the_order_of_the_tally_is_kept() -> None:
    engine = engine_at(net(), Seat())
    engine.micro_step(batch(1), weight=1.0, last=True)
    assert engine.step(lr_scale=1.0, tally=[3.0, 0.0, 1.5]).tally == (3.0, 0.0, 1.5)


def test_tensors_and_buffers_are_those_of_the_model() -> None:
    engine = engine_at(net(), Seat(), stage=3)
    assert list(engine.tensors()) == [name for name, _ in net().named_parameters()]
    assert engine.tensors()["first.weight"].shape == (7, 5)
    assert not engine.tensors()["fixed"].trainable
    assert list(engine.buffers()) == ["seen"]


def test_pieces_elsewhere_and_kinds_that_are_no_training_state_are_refused() -> None:
    engine = engine_at(net(), Seat(number=1, count=2), stage=2)
    with pytest.raises(KeyError, match="layout"):
        engine.export(StateKind.MASTER, Piece("first.weight", Interval(0, 1)))
    with pytest.raises(KeyError, match="nothing"):
        engine.export(StateKind.MASTER, Piece("nothing", Interval(0, 1)))
    mine = engine.layout().of(1)[0]
    with pytest.raises(KeyError, match="grad"):
        engine.export(StateKind.GRAD, mine)
    with pytest.raises(ValueError, match="1 values"):
        engine.load(StateKind.MASTER, mine, torch.zeros(1))


def test_scalars_of_another_model_are_refused() -> None:
    with pytest.raises(KeyError, match=r"first\.weight"):
        engine_at(net(), Seat()).load_scalars({"steps": {"other": 1}})


@STAGES
def test_an_optimizer_built_before_the_engine_holds_what_trains_and_cannot_disturb_it(stage: int) -> None:
    model, plain = net(), engine_at(net(), Seat(), stage=stage)
    early = torch.optim.SGD(model.parameters(), lr=1.0)
    engine = engine_at(model, Seat(), stage=stage)
    assert all(a is b for a, b in zip(early.param_groups[0]["params"], model.parameters(), strict=True))
    for each in (engine, plain):
        train(each, range(2))
        early.step()
    assert equal(state(engine), state(plain))


@pytest.mark.parametrize("stage", [1, 3])
def test_buffers_of_every_kind_stay_and_floating_ones_alone_change_their_type(stage: int) -> None:
    model = net()
    model.register_buffer("count", torch.tensor(2**40 + 1))
    model.register_buffer("mask", torch.tensor([True, False]), persistent=False)
    precision = Precision(params=torch.bfloat16, buffers=torch.float16)
    engine = engine_at(model, Seat(), stage=stage, precision=precision)
    assert set(engine.buffers()) == {"seen", "count"}
    types = {name: buffer.dtype for name, buffer in model.named_buffers()}
    half = torch.float16
    assert types == {"seen": half, "scratch": half, "count": torch.int64, "mask": torch.bool}
    model.count += 1
    engine.rejoin(Seat())
    assert int(engine.buffers()["count"]) == 2**40 + 2


@STAGES
def test_a_dropped_engine_frees_its_state_and_leaves_the_model_without_hooks(stage: int) -> None:
    model, placement = net(), Placement.of(torch.device("cpu"))
    engine = engine_at(model, Seat(), stage=stage, placement=placement)
    train(engine, range(1))
    moment = weakref.ref(placement.fetch(StateKey(1, StateKind.EXP_AVG)))
    seen = weakref.ref(engine)
    del engine, placement
    gc.collect()
    assert seen() is None
    assert moment() is None
    for module in model.modules():
        assert not module._forward_pre_hooks
        assert not module._forward_hooks


def test_a_model_may_be_evaluated_between_steps() -> None:
    values = []
    for stage in range(4):
        model = net()
        engine = engine_at(model, Seat(), stage=stage)
        train(engine, range(2))
        with torch.no_grad():
            values.append(model(batch(9)).item())
        train(engine, range(2, 3))
        assert engine.footprint().gathered_bytes == 0
    assert values == pytest.approx([values[0]] * 4, rel=1e-6)


def test_backward_outside_a_micro_step_is_refused_at_stage_3() -> None:
    model = net()
    engine = engine_at(model, Seat(), stage=3)
    loss = model(batch(1))
    with pytest.raises(RuntimeError, match="outside micro_step"):
        loss.backward()
    assert engine.footprint().gathered_bytes == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_peer_that_dies_after_all_agreed_leaves_a_whole_step_and_shows_in_the_next_call(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    precision = Precision(params=dtype)
    engine, other = (engine_at(net(), Seat(), stage=2, precision=precision) for _ in range(2))
    for each in (engine, other):
        train(each, range(2))
        each.micro_step(batch(9), weight=1.0, last=True)
    told: list[str] = []

    def gather(self: Collectives, full: Tensor, shard: Tensor, *, name: str = "all_gather", unit: str = "") -> Pending:
        if name == "agree":
            return original(self, full, shard, name=name, unit=unit)
        told.append(name)
        raise RuntimeError("connection closed by peer")

    original = Collectives.gather
    outcome = other.step(lr_scale=1.0)
    monkeypatch.setattr(Collectives, "gather", gather)
    assert engine.step(lr_scale=1.0) == outcome
    assert equal(state(engine), state(other))
    assert engine.scalars() == other.scalars()
    assert len(told) == 1
    with pytest.raises(RuntimeError, match="closed by peer"):
        engine.micro_step(batch(1), weight=1.0, last=True)
    monkeypatch.undo()
    held = engine.rejoin(Seat())
    assert equal(dict(held.values), state(other))


class Meddler(Net):
    """Reads a block's parameter from outside the block."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.blocks[0].weight.square().mean()


def test_a_parameter_read_outside_its_unit_spoils_the_step_in_plain_sight_rather_than_the_process() -> None:
    torch.manual_seed(5)
    model = Meddler()
    engine = engine_at(model, Seat(), stage=3)
    before = state(engine)
    assert math.isnan(engine.micro_step(batch(1), weight=1.0, last=True).item())
    assert engine.step(lr_scale=1.0).skipped
    assert equal(state(engine), before)
    assert model.blocks[0].weight.isnan().all()
    assert model.blocks[0].weight.shape == (7, 7)


@STAGES
def test_bf16_keeps_an_fp32_master_that_small_updates_reach(stage: int) -> None:
    model = net()
    optimizer = OptimizerConfig(lr=1e-6, weight_decay=0.0)
    engine = engine_at(model, Seat(), stage=stage, precision=Precision(params=torch.bfloat16), optimizer=optimizer)
    before = state(engine)
    reference = dict(net().named_parameters())
    for (kind, piece), values in before.items():
        if kind is StateKind.MASTER and piece.tensor != "fixed":
            assert torch.equal(values, reference[piece.tensor].detach().reshape(-1))
    train(engine, range(3))
    moved = [
        (after - before[kind, piece]).abs().max().item()
        for (kind, piece), after in state(engine).items()
        if kind is StateKind.MASTER and piece.tensor != "fixed"
    ]
    # Three steps of 1e-6 vanish in a bf16 weight of 0.3.
    assert all(1e-6 < change < 4e-6 for change in moved)
