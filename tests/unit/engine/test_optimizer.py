from __future__ import annotations

import pytest
import torch

from workers.engine.zero.optimizer import CAST_NUMEL, FlatAdamW, Operands, OptimizerConfig, Part, Span, merge_parts

CONFIG = OptimizerConfig(lr=1e-2, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.3)


def operands(numel: int, dtype: torch.dtype = torch.float32) -> Operands:
    torch.manual_seed(numel)
    return Operands(
        master=torch.randn(numel),
        grad=torch.randn(numel).to(dtype),
        exp_avg=torch.zeros(numel),
        exp_avg_sq=torch.zeros(numel),
    )


def torch_adamw(start: torch.Tensor, grads: list[torch.Tensor], lrs: list[float]) -> torch.Tensor:
    param = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([param], lr=1.0, betas=CONFIG.betas, eps=CONFIG.eps, weight_decay=CONFIG.weight_decay)
    for grad, lr in zip(grads, lrs, strict=True):
        optimizer.param_groups[0]["lr"] = lr
        param.grad = grad.clone()
        optimizer.step()
    return param.detach()


def test_a_shard_moves_as_under_torch_adamw() -> None:
    state = operands(1001)
    expected = torch_adamw(state.master, [state.grad / 4] * 3, [1e-2, 5e-3, 1e-2])
    grad = state.grad.clone()
    for step, lr_scale in ((1, 1.0), (2, 0.5), (3, 1.0)):
        state.grad.copy_(grad)
        FlatAdamW(CONFIG).update(state, [Span(start=0, stop=1001, step=step)], lr_scale=lr_scale, grad_divisor=4.0)
    torch.testing.assert_close(state.master, expected)


def test_spans_keep_their_own_step_and_the_rest_is_untouched() -> None:
    state = operands(30)
    before = state.master.clone()
    spans = [Span(start=0, stop=10, step=1), Span(start=20, stop=30, step=7)]
    FlatAdamW(CONFIG).update(state, spans, lr_scale=1.0, grad_divisor=1.0)
    assert torch.equal(state.master[10:20], before[10:20])
    torch.testing.assert_close(state.master[:10], torch_adamw(before[:10], [state.grad[:10]], [1e-2]))
    # At step 7 the moments are taken for older than they are, so the same gradient moves farther.
    assert not torch.allclose(state.master[20:], torch_adamw(before[20:], [state.grad[20:]], [1e-2]))


def test_no_span_is_no_change() -> None:
    state = operands(5)
    before = state.master.clone()
    FlatAdamW(CONFIG).update(state, [], lr_scale=1.0, grad_divisor=1.0)
    assert torch.equal(state.master, before)


def test_a_bf16_gradient_is_cast_piece_by_piece() -> None:
    state = operands(CAST_NUMEL + 3, torch.bfloat16)
    expected = torch_adamw(state.master, [state.grad.float()], [1e-2])
    FlatAdamW(CONFIG).update(state, [Span(start=0, stop=CAST_NUMEL + 3, step=1)], lr_scale=1.0, grad_divisor=1.0)
    torch.testing.assert_close(state.master, expected)


PARTS = [Part(number=3, start=0, stop=3), Part(number=4, start=3, stop=5), Part(number=5, start=5, stop=6)]


def merged(touched: dict[int, int], steps: dict[int, int]) -> list[tuple[int, int, int]]:
    row = [touched.get(number, 1) for number in range(6)]
    counts = [steps.get(number, 1) for number in range(6)]
    return [(span.start, span.stop, span.step) for span in merge_parts(PARTS, touched=row, steps=counts)]


def test_neighbours_of_one_step_merge() -> None:
    assert merged({}, {}) == [(0, 6, 1)]
    assert merged({}, {4: 2, 5: 2}) == [(0, 3, 1), (3, 6, 2)]
    assert merged({}, {4: 2}) == [(0, 3, 1), (3, 5, 2), (5, 6, 1)]


def test_parameters_without_a_gradient_are_left_out() -> None:
    assert merged({4: 0}, {}) == [(0, 3, 1), (5, 6, 1)]
    assert merged({3: 0}, {}) == [(3, 6, 1)]
    assert merged({3: 0, 4: 0, 5: 0}, {}) == []


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(ValueError, match="sgdd"):
        OptimizerConfig(name="sgdd")
