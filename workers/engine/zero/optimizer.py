"""AdamW on flat shards: torch's fused kernel over intervals that share step count and hyperparameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.adamw import adamw

# Elements of a low-precision gradient that are cast to fp32 at a time: the fused kernel wants one dtype.
CAST_NUMEL = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """torch's AdamW (Loshchilov and Hutter 2019): decoupled weight decay on every trainable parameter."""

    name: str = "adamw"
    lr: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1

    def __post_init__(self) -> None:
        if self.name != "adamw":
            raise ValueError(f"optimizer.name is {self.name!r}; this engine knows 'adamw'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Elements `start <= i < stop` of a shard whose parameters take their step number `step` (the first is 1)."""

    start: int
    stop: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """One shard's state, 1-D and aligned: fp32 but for the gradient."""

    master: Tensor
    grad: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Where parameter `number` (the engine's count) lies in a shard."""

    number: int
    start: int
    stop: int


def merge_parts(parts: Sequence[Part], *, touched: Sequence[float], steps: Sequence[int]) -> Iterator[Span]:
    """The parts whose parameter had a gradient; neighbours of one step number are one span."""
    start = stop = step = 0
    for part in parts:
        if not touched[part.number]:
            continue
        if part.start != stop or steps[part.number] != step:
            if stop > start:
                yield Span(start=start, stop=stop, step=step)
            start, step = part.start, steps[part.number]
        stop = part.stop
    if stop > start:
        yield Span(start=start, stop=stop, step=step)


class FlatAdamW:
    """Updates shards in place. Knows no unit and no rank."""

    def __init__(self, config: OptimizerConfig) -> None:
        self._config = config

    def update(self, operands: Operands, spans: Sequence[Span], *, lr_scale: float, grad_divisor: float) -> None:
        """One step for the spans. The gradient, divided by `grad_divisor` first (clipping), is scratch afterwards."""
        spans = [part for span in spans for part in _fit(span, operands.grad)]
        if not spans:
            return
        config = self._config
        grad_scale = torch.tensor(grad_divisor, device=operands.grad.device) if grad_divisor != 1.0 else None
        batches = [spans] if operands.grad.dtype == operands.master.dtype else [[span] for span in spans]
        for batch in batches:
            adamw(
                _cut(operands.master, batch),
                [grad.float() for grad in _cut(operands.grad, batch)],
                _cut(operands.exp_avg, batch),
                _cut(operands.exp_avg_sq, batch),
                [],
                # The functional form counts the step itself.
                [torch.tensor(float(span.step - 1), device=operands.master.device) for span in batch],
                fused=True,
                grad_scale=grad_scale,
                amsgrad=False,
                beta1=config.betas[0],
                beta2=config.betas[1],
                lr=config.lr * lr_scale,
                weight_decay=config.weight_decay,
                eps=config.eps,
                maximize=False,
            )


def _cut(vector: Tensor, spans: Sequence[Span]) -> list[Tensor]:
    return [vector.narrow(0, span.start, span.stop - span.start) for span in spans]


def _fit(span: Span, grad: Tensor) -> Iterator[Span]:
    size = span.stop - span.start if grad.dtype == torch.float32 else CAST_NUMEL
    for start in range(span.start, span.stop, max(size, 1)):
        yield Span(start=start, stop=min(start + size, span.stop), step=span.step)
