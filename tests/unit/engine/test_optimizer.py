from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from workers.engine.states import StateKind
from workers.optimizers.config import Hyper, OptimizerConfig, ParamGroup
from workers.optimizers.elementwise import WINDOW_NUMEL, FlatOptimizer, Operands, Part, Span, merge_parts

NUMBERS: dict[str, Any] = {"lr": 1e-2, "eps": 1e-6, "weight_decay": 0.3, "betas": (0.8, 0.9)}
CONFIG = OptimizerConfig(**NUMBERS)


class Lion(torch.optim.Optimizer):
    """The paper's algorithm 2, literally."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})
        self.average = 0.0

    def step(self) -> None:  # type: ignore[override]
        beta1, beta2 = NUMBERS["betas"]
        group = self.param_groups[0]
        (param,) = group["params"]
        c = beta1 * self.average + (1 - beta1) * param.grad
        with torch.no_grad():
            param -= group["lr"] * (c.sign() + NUMBERS["weight_decay"] * param)
        self.average = beta2 * self.average + (1 - beta2) * param.grad


def _torch(kind: Callable[..., Any], *names: str, **more: Any) -> Callable[[Any], Any]:
    return lambda params: kind(params, lr=1.0, **{name: NUMBERS[name] for name in names}, **more)


PEERS: dict[str, tuple[OptimizerConfig, Callable[[Any], Any]]] = {
    "adamw": (CONFIG, _torch(torch.optim.AdamW, "betas", "eps", "weight_decay")),
    "adam": (
        OptimizerConfig(name="adam", **NUMBERS),
        _torch(torch.optim.Adam, "betas", "eps", "weight_decay"),
    ),
    "sgd": (OptimizerConfig(name="sgd", **NUMBERS), _torch(torch.optim.SGD, "weight_decay")),
    "sgd with momentum": (
        OptimizerConfig(name="sgd", momentum=0.9, **NUMBERS),
        _torch(torch.optim.SGD, "weight_decay", momentum=0.9),
    ),
    "nesterov": (
        OptimizerConfig(name="sgd", momentum=0.9, nesterov=True, **NUMBERS),
        _torch(torch.optim.SGD, "weight_decay", momentum=0.9, nesterov=True),
    ),
    "adagrad": (OptimizerConfig(name="adagrad", **NUMBERS), _torch(torch.optim.Adagrad, "eps", "weight_decay")),
    "lion": (OptimizerConfig(name="lion", **NUMBERS), lambda params: Lion(params, 1.0)),
}


def operands(numel: int, dtype: torch.dtype = torch.float32, config: OptimizerConfig = CONFIG) -> Operands:
    torch.manual_seed(numel)
    return Operands(
        master=torch.randn(numel),
        grad=torch.randn(numel).to(dtype),
        beside={kind: torch.zeros(numel) for kind in config.beside_master()},
    )


def peer(name: str, start: torch.Tensor, grads: list[torch.Tensor], lrs: list[float]) -> torch.Tensor:
    param = torch.nn.Parameter(start.clone())
    optimizer = PEERS[name][1]([param])
    for grad, lr in zip(grads, lrs, strict=True):
        optimizer.param_groups[0]["lr"] = lr
        param.grad = grad.clone()
        optimizer.step()
    return param.detach()


def span(start: int, stop: int, step: int, config: OptimizerConfig = CONFIG) -> Span:
    return Span(start=start, stop=stop, step=step, hyper=config.hyper("any", ndim=2))


@pytest.mark.parametrize("name", PEERS)
def test_a_shard_moves_as_under_the_optimizer_of_that_name(name: str) -> None:
    config = PEERS[name][0]
    state = operands(1001, config=config)
    grads = [torch.randn(1001, generator=torch.Generator().manual_seed(step)) for step in range(3)]
    expected = peer(name, state.master, [grad / 4 for grad in grads], [1e-2, 5e-3, 1e-2])
    for step, lr_scale in ((1, 1.0), (2, 0.5), (3, 1.0)):
        state.grad.copy_(grads[step - 1])
        FlatOptimizer(config).update(state, [span(0, 1001, step, config)], lr_scale=lr_scale, grad_divisor=4.0)
    torch.testing.assert_close(state.master, expected)


@pytest.mark.parametrize("name", PEERS)
def test_a_bf16_gradient_is_cast_window_by_window(name: str) -> None:
    config = PEERS[name][0]
    state = operands(WINDOW_NUMEL + 3, torch.bfloat16, config)
    expected = peer(name, state.master, [state.grad.float()], [1e-2])
    FlatOptimizer(config).update(state, [span(0, WINDOW_NUMEL + 3, 1, config)], lr_scale=1.0, grad_divisor=1.0)
    torch.testing.assert_close(state.master, expected)


def test_spans_keep_their_own_step_and_the_rest_is_untouched() -> None:
    state = operands(30)
    before = state.master.clone()
    FlatOptimizer(CONFIG).update(state, [span(0, 10, 1), span(20, 30, 7)], lr_scale=1.0, grad_divisor=1.0)
    assert torch.equal(state.master[10:20], before[10:20])
    torch.testing.assert_close(state.master[:10], peer("adamw", before[:10], [state.grad[:10]], [1e-2]))
    # At step 7 the moments are taken for older than they are, so the same gradient moves farther.
    assert not torch.allclose(state.master[20:], peer("adamw", before[20:], [state.grad[20:]], [1e-2]))


def test_spans_of_two_groups_move_by_their_own_numbers() -> None:
    state = operands(30)
    before = state.master.clone()
    other = Span(start=10, stop=30, step=1, hyper=Hyper(lr=2e-2, weight_decay=0.3))
    FlatOptimizer(CONFIG).update(state, [span(0, 10, 1), other], lr_scale=1.0, grad_divisor=1.0)
    expected = [peer("adamw", before, [state.grad], [lr]) for lr in (1e-2, 2e-2)]
    torch.testing.assert_close(state.master, torch.cat([expected[0][:10], expected[1][10:]]))


def test_no_span_is_no_change() -> None:
    state = operands(5)
    before = state.master.clone()
    FlatOptimizer(CONFIG).update(state, [], lr_scale=1.0, grad_divisor=1.0)
    assert torch.equal(state.master, before)


def test_the_average_of_the_weights_is_torchs() -> None:
    config = OptimizerConfig(ema_decay=0.7)
    state, model = operands(10, config=config), torch.nn.Linear(10, 1, bias=False)
    averaged = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.7))
    for update in range(4):
        torch.nn.init.constant_(model.weight, update)
        state.master.fill_(update)
        averaged.update_parameters(model)
        FlatOptimizer(config).average(state, first=update == 0, window=4)
    torch.testing.assert_close(state.beside[StateKind.EMA], averaged.module.weight.detach()[0])


PARTS = [Part(number=3, start=0, stop=3), Part(number=4, start=3, stop=5), Part(number=5, start=5, stop=6)]


def merged(touched: dict[int, int], steps: dict[int, int], lrs: dict[int, float] | None = None) -> list[tuple]:
    row = [touched.get(number, 1) for number in range(6)]
    counts = [steps.get(number, 1) for number in range(6)]
    hypers = [Hyper(lr=(lrs or {}).get(number, 1.0), weight_decay=0.0) for number in range(6)]
    spans = merge_parts(PARTS, touched=row, steps=counts, hypers=hypers)
    return [(span.start, span.stop, span.step) for span in spans]


def test_neighbours_of_one_step_and_group_merge() -> None:
    assert merged({}, {}) == [(0, 6, 1)]
    assert merged({}, {4: 2, 5: 2}) == [(0, 3, 1), (3, 6, 2)]
    assert merged({}, {4: 2}) == [(0, 3, 1), (3, 5, 2), (5, 6, 1)]
    assert merged({}, {}, {5: 0.5}) == [(0, 5, 1), (5, 6, 1)]


def test_parameters_without_a_gradient_are_left_out() -> None:
    assert merged({4: 0}, {}) == [(0, 3, 1), (5, 6, 1)]
    assert merged({3: 0}, {}) == [(3, 6, 1)]
    assert merged({3: 0, 4: 0, 5: 0}, {}) == []


def test_the_first_group_that_has_a_parameter_gives_its_numbers() -> None:
    groups = (
        ParamGroup(match=("*.bias", "norm*"), weight_decay=0.0),
        ParamGroup(match=("nothing.*",), lr=9.0),
        ParamGroup(match=("*",), lr=0.5),
    )
    config = OptimizerConfig(lr=1.0, weight_decay=0.1, groups=groups)
    assert config.hyper("block.0.bias", ndim=1) == Hyper(lr=1.0, weight_decay=0.0)
    assert config.hyper("block.0.weight", ndim=2) == Hyper(lr=0.5, weight_decay=0.1)


def test_vectors_may_be_left_without_decay_and_a_group_may_say_otherwise() -> None:
    groups = (ParamGroup(match=("scale",), weight_decay=0.2),)
    config = OptimizerConfig(lr=1.0, weight_decay=0.1, groups=groups, decay_vectors=False)
    numbers = {name: config.hyper(name, ndim=ndim).weight_decay for name, ndim in (("a", 2), ("b", 1), ("scale", 0))}
    assert numbers == {"a": 0.1, "b": 0.0, "scale": 0.2}


def test_an_optimizer_keeps_what_it_needs_and_no_more() -> None:
    kept = {name: tuple(map(str, config.beside_master())) for name, (config, _) in PEERS.items()}
    assert kept == {
        "adamw": ("exp_avg", "exp_avg_sq"),
        "adam": ("exp_avg", "exp_avg_sq"),
        "sgd": (),
        "sgd with momentum": ("momentum_buffer",),
        "nesterov": ("momentum_buffer",),
        "adagrad": ("sum",),
        "lion": ("exp_avg",),
    }
    assert OptimizerConfig(name="sgd", ema_decay=0.9).kinds() == (StateKind.MASTER, StateKind.EMA)


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(ValueError, match="sgdd"):
        OptimizerConfig(name="sgdd")
    with pytest.raises(ValueError, match="nesterov"):
        OptimizerConfig(name="sgd", nesterov=True)
