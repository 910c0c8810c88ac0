"""What both engines are: a model, its optimizer's numbers, and all that advances with a step and is no shard."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from workers.engine.precision import Precision
from workers.engine.protocol import StepOutcome
from workers.engine.states import Meter, StateKind, TensorMeta, Traffic
from workers.optimizers.ages import Ages
from workers.optimizers.config import OptimizerConfig
from workers.optimizers.elementwise import FlatOptimizer
from workers.optimizers.loss_scale import LossScale
from workers.optimizers.muon import lr_ratio
from workers.optimizers.norms import clip_divisor


class EngineCore:
    """The part of the engine protocol that does not depend on who holds what."""

    def __init__(
        self,
        model: nn.Module,
        precision: Precision,
        optimizer: OptimizerConfig,
        clip_norm: float | None,
        device: torch.device,
        *,
        meter: Meter,
        matrices: Collection[str] = (),
        uniform: bool = False,
    ) -> None:
        """matrices: what Muon orthogonalizes."""
        self._model, self._precision, self._config, self._device = model, precision, optimizer, device
        self._optimizer = FlatOptimizer(optimizer, uniform=uniform)
        self._loss_scale = LossScale(precision.scaling)
        self._clip_norm = clip_norm
        self._meter = meter
        self._metas = {
            name: TensorMeta(
                shape=tuple(param.shape),
                dtype=str(param.dtype).removeprefix("torch."),
                trainable=param.requires_grad,
                kept=(StateKind.MASTER, *optimizer.beside_master(matrices=name in matrices)) if matrices else None,
            )
            for name, param in model.named_parameters()
        }
        self._matrices = matrices
        self._start([name for name, meta in self._metas.items() if meta.trainable])

    def tensors(self) -> Mapping[str, TensorMeta]:
        return self._metas

    def kinds(self) -> tuple[StateKind, ...]:
        return self._config.kinds()

    def scalars(self) -> dict[str, Any]:
        return self._ages.scalars() | self._loss_scale.scalars()

    def load_scalars(self, scalars: Mapping[str, Any]) -> None:
        self._ages.load(scalars)
        self._loss_scale.load(scalars)

    def buffers(self) -> Mapping[str, Tensor]:
        persistent = self._model.state_dict(keep_vars=True).keys()
        return {name: buffer for name, buffer in self._model.named_buffers() if name in persistent}

    def traffic(self) -> Traffic:
        return self._meter.total()

    def _start(self, trainable: Iterable[str]) -> None:
        """The order in which trainable parameters are counted, ages and numbers alike."""
        shapes = {name: self._metas[name].shape for name in trainable}
        ratios = {n: lr_ratio(shapes[n], self._config.adjust_lr) for n in shapes if n in self._matrices}
        hyper = self._config.hyper
        self._hypers = {n: hyper(n, ndim=len(shape), ratio=ratios.get(n, 1.0)) for n, shape in shapes.items()}
        self._ages = Ages([*shapes])

    def _loss(self, batch: Any) -> Tensor:
        loss: Tensor = self._model(self._precision.cast_inputs(batch))
        if loss.numel() != 1:
            raise ValueError(f"model(batch) returned shape {tuple(loss.shape)}; the engine needs the mean loss")
        return loss

    def _backward(self, loss: Tensor, weight: float) -> None:
        (loss.float() * (weight * self._loss_scale.value)).backward()  # type: ignore[no-untyped-call]

    def _conclude(
        self, *, square: float, bad: float, tally: tuple[float, ...], update: Callable[[float], None]
    ) -> StepOutcome:
        """By what the group has agreed on: `update` with the divisor of the gradients, or nothing at all."""
        # The scale of this step's backwards: it changes only after the step.
        scale, skipped = self._loss_scale.value, bad > 0 or not math.isfinite(square)
        norm = math.nan if skipped else math.sqrt(square) / scale
        if not skipped:
            update(scale * clip_divisor(norm, self._clip_norm))
        excused = self._loss_scale.judge(overflowed=skipped)
        return StepOutcome(grad_norm=norm, skipped=skipped, tally=tally, excused=excused, loss_scale=scale)


def move_buffers(model: nn.Module, device: torch.device, dtype: torch.dtype | None) -> None:
    """In place; floating ones to `dtype` where it is given. What is on the meta device gets memory, undefined."""
    for buffer in model.buffers():
        wanted = dtype if dtype is not None and buffer.is_floating_point() else buffer.dtype
        values = torch.empty_like(buffer, device=device) if buffer.is_meta else buffer.data
        buffer.data = values.to(device=device, dtype=wanted)
