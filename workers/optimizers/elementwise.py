"""Elementwise optimizers on flat shards: torch's kernels over intervals that share step count and hyperparameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from workers.optimizers.config import Hyper, OptimizerConfig
from workers.optimizers.kinds import StateKind

# Elements that are worked on at a time where a temporary is needed: a low-precision gradient in fp32, Lion's update.
WINDOW_NUMEL = 1 << 20
# At least a vector register of every CPU: with fewer elements, at the end of an interval, kernels may round otherwise.
LANES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Elements `start <= i < stop` of a shard whose parameters take their step number `step` (the first is 1)."""

    start: int
    stop: int
    step: int
    hyper: Hyper


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """One shard's state, 1-D and aligned: fp32 but for the gradient. `beside`: what the optimizer keeps. orthogonal: of
    matrices, what Muon made of them."""

    master: Tensor
    grad: Tensor
    beside: Mapping[StateKind, Tensor]
    orthogonal: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Where parameter `number` (the engine's count) lies in a shard."""

    number: int
    start: int
    stop: int


def merge_parts(
    parts: Sequence[Part], *, touched: Sequence[float], steps: Sequence[int], hypers: Sequence[Hyper]
) -> Iterator[Span]:
    """The parts whose parameter had a gradient; neighbours of one step number and one group are one span."""
    span: Span | None = None
    for part in parts:
        if not touched[part.number]:
            continue
        step, hyper, start = steps[part.number], hypers[part.number], part.start
        if span is not None and span.stop == start and span.step == step and span.hyper == hyper:
            start = span.start
        elif span is not None:
            yield span
        span = Span(start=start, stop=part.stop, step=step, hyper=hyper)
    if span is not None:
        yield span


class FlatOptimizer:
    """Updates shards in place. Knows no unit and no rank."""

    def __init__(self, config: OptimizerConfig, *, uniform: bool = False) -> None:
        """uniform: an element's bits do not depend on where in its interval it lies."""
        self._config = config
        self._uniform = uniform
        self._rule = {"sgd": _sgd, "adagrad": _adagrad, "lion": _lion}.get(config.name, _adam)

    def update(self, operands: Operands, spans: Iterable[Span], *, lr_scale: float, grad_divisor: float) -> None:
        """One step for the spans. The gradient, divided by `grad_divisor` first, is scratch afterwards."""
        for batch in self._batches([span for span in spans if span.stop > span.start], operands.grad.dtype):
            hyper, edges = batch[0].hyper, _Edges()
            batch, cut = (_registers(batch), edges.cut) if self._uniform else (batch, _cut)
            lists = _Lists(
                params=cut(operands.master, batch),
                grads=[grad.float() for grad in cut(operands.grad, batch)],
                beside={kind: cut(values, batch) for kind, values in operands.beside.items()},
                # torch's functional forms count the step themselves.
                steps=[torch.tensor(float(span.step - 1), device=operands.master.device) for span in batch],
                divisor=grad_divisor,
            )
            lr, weight_decay = hyper.lr * lr_scale, hyper.weight_decay
            if operands.orthogonal is None:
                self._rule(self._config, lists, lr=lr, weight_decay=weight_decay)
                edges.put_back()
                continue
            lists.divide()
            torch._foreach_lerp_(lists.beside[StateKind.MOMENTUM], lists.grads, 1.0 - self._config.momentum)
            torch._foreach_mul_(lists.params, 1.0 - lr * weight_decay)
            for param, update in zip(lists.params, _cut(operands.orthogonal, batch), strict=True):
                param.add_(update, alpha=-lr * hyper.ratio)

    def lookahead(self, momentum: Tensor, grad: Tensor, spans: Iterable[Span], *, grad_divisor: float) -> Tensor:
        """What Muon orthogonalizes, in bf16 as it does so; zeros outside the spans. The state stays as it is."""
        ahead = torch.zeros_like(grad, dtype=torch.bfloat16)
        for window in (window for span in spans for window in _windows(span)):
            (new,), (kept,), (into,) = (_cut(each, [window]) for each in (grad, momentum, ahead))
            new = new.float() / grad_divisor
            moved = kept.lerp(new, 1.0 - self._config.momentum)
            into.copy_(new.lerp(moved, self._config.momentum) if self._config.nesterov else moved)
        return ahead

    def average(self, operands: Operands, *, first: bool, window: int) -> None:
        """The average of the weights follows them; `window`: where all stages cut, so that all give the same bits."""
        if self._config.ema_decay is None:
            return
        ema, master = operands.beside[StateKind.EMA], operands.master
        if first:
            ema.copy_(master)
            return
        for start in range(0, master.numel(), max(window, 1)):
            size = min(window, master.numel() - start)
            old, new = ema.narrow(0, start, size), master.narrow(0, start, size)
            if self._uniform:
                old.add_((new - old).mul_(1.0 - self._config.ema_decay))
            else:
                old.lerp_(new, 1.0 - self._config.ema_decay)

    def _batches(self, spans: Sequence[Span], grad_dtype: torch.dtype) -> list[list[Span]]:
        """What goes through a kernel at once: one group's spans, or a window where a temporary of it is needed."""
        if grad_dtype != torch.float32 or self._config.name == "lion":
            return [[window] for span in spans for window in _windows(span)]
        by_group: dict[Hyper, list[Span]] = {}
        for span in spans:
            by_group.setdefault(span.hyper, []).append(span)
        return list(by_group.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lists:
    """A batch as torch's functional optimizers take it."""

    params: list[Tensor]
    grads: list[Tensor]
    beside: Mapping[StateKind, list[Tensor]]
    steps: list[Tensor]
    divisor: float

    @property
    def grad_scale(self) -> Tensor | None:
        """What a fused kernel divides the gradient by."""
        return torch.tensor(self.divisor, device=self.params[0].device) if self.divisor != 1.0 else None

    def divide(self) -> None:
        """The same for forms that are not fused."""
        if self.divisor != 1.0:
            torch._foreach_div_(self.grads, self.divisor)


def _adam(config: OptimizerConfig, lists: _Lists, *, lr: float, weight_decay: float) -> None:
    adam(
        lists.params,
        lists.grads,
        lists.beside[StateKind.EXP_AVG],
        lists.beside[StateKind.EXP_AVG_SQ],
        [],
        lists.steps,
        fused=True,
        grad_scale=lists.grad_scale,
        decoupled_weight_decay=config.name != "adam",
        amsgrad=False,
        beta1=config.betas[0],
        beta2=config.betas[1],
        lr=lr,
        weight_decay=weight_decay,
        eps=config.eps,
        maximize=False,
    )


def _sgd(config: OptimizerConfig, lists: _Lists, *, lr: float, weight_decay: float) -> None:
    # A buffer of zeros becomes the first gradient, as torch's does: there is no dampening.
    sgd(
        lists.params,
        lists.grads,
        [*lists.beside.get(StateKind.MOMENTUM, [None] * len(lists.params))],
        fused=True,
        grad_scale=lists.grad_scale,
        weight_decay=weight_decay,
        momentum=config.momentum,
        lr=lr,
        dampening=0.0,
        nesterov=config.nesterov,
        maximize=False,
    )


def _adagrad(config: OptimizerConfig, lists: _Lists, *, lr: float, weight_decay: float) -> None:
    fused = lists.params[0].device.type == "cpu"
    if not fused:
        lists.divide()
    adagrad(
        lists.params,
        lists.grads,
        lists.beside[StateKind.SUM],
        lists.steps,
        fused=fused,
        foreach=not fused,
        grad_scale=lists.grad_scale if fused else None,
        lr=lr,
        weight_decay=weight_decay,
        lr_decay=0.0,
        eps=config.eps,
        maximize=False,
    )


def _lion(config: OptimizerConfig, lists: _Lists, *, lr: float, weight_decay: float) -> None:
    lists.divide()
    moments, (beta1, beta2) = lists.beside[StateKind.EXP_AVG], config.betas
    torch._foreach_mul_(lists.params, 1.0 - lr * weight_decay)
    updates = torch._foreach_lerp(moments, lists.grads, 1.0 - beta1)
    torch._foreach_sign_(updates)
    torch._foreach_add_(lists.params, updates, alpha=-lr)
    torch._foreach_lerp_(moments, lists.grads, 1.0 - beta2)


def _cut(vector: Tensor, spans: Sequence[Span]) -> list[Tensor]:
    return [vector.narrow(0, span.start, span.stop - span.start) for span in spans]


def _registers(spans: Sequence[Span]) -> list[Span]:
    """Whole registers, and what is left of each span by itself."""
    ends = [(span, span.stop - (span.stop - span.start) % LANES) for span in spans]
    parts = [part for span, end in ends for part in (replace(span, stop=end), replace(span, start=end))]
    return [part for part in parts if part.stop > part.start]


class _Edges:
    """Parts of less than a register, moved into whole ones to be updated there."""

    def __init__(self) -> None:
        self._moved: list[tuple[Tensor, Tensor]] = []

    def cut(self, vector: Tensor, spans: Sequence[Span]) -> list[Tensor]:
        return [self._whole(part) for part in _cut(vector, spans)]

    def put_back(self) -> None:
        for part, register in self._moved:
            part.copy_(register[: part.numel()])

    def _whole(self, part: Tensor) -> Tensor:
        if part.numel() % LANES == 0:
            return part
        register = part.new_zeros(LANES)
        register[: part.numel()] = part
        self._moved.append((part, register))
        return register


def _windows(span: Span) -> Iterator[Span]:
    for start in range(span.start, span.stop, WINDOW_NUMEL):
        yield Span(start=start, stop=min(start + WINDOW_NUMEL, span.stop), step=span.step, hyper=span.hyper)
