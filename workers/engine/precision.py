"""Which dtype computes, which travels and which rests; the master copy is fp32 always."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from workers.optimizers.loss_scale import DYNAMIC, LossScaleRule

MASTER_DTYPE = torch.float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """params: forward and backward, and gradients at rest where parameters rest too. reduce: gradients on the wire;
    None: as params. buffers: the model's floating ones; None: as they are. loss_scale: for fp16, on either way."""

    params: torch.dtype = torch.float32
    reduce: torch.dtype | None = None
    buffers: torch.dtype | None = None
    loss_scale: LossScaleRule = DYNAMIC

    def __post_init__(self) -> None:
        for role, dtype in (("params", self.params), ("reduce", self.reduce), ("buffers", self.buffers)):
            if dtype is not None and not dtype.is_floating_point:
                raise ValueError(f"precision.{role} is {dtype}; choose a floating dtype such as torch.bfloat16")

    @property
    def reduce_dtype(self) -> torch.dtype:
        return self.reduce or self.params

    @property
    def scaling(self) -> LossScaleRule | None:
        return self.loss_scale if torch.float16 in (self.params, self.reduce_dtype) else None

    @property
    def master_is_param(self) -> bool:
        """In fp32 the parameter is its own master: no second copy exists."""
        return self.params == MASTER_DTYPE

    def param_dtype(self, original: torch.dtype) -> torch.dtype:
        """Floating parameters compute in `params`; others (quantized, frozen) stay as they are."""
        return self.params if original.is_floating_point else original

    def cast_inputs(self, batch: Any) -> Any:
        """fp32 inputs in the compute dtype: a linear layer refuses mixed operands. Nothing to do in fp32."""
        if self.params == torch.float32:
            return batch
        return pytree.tree_map_only(torch.Tensor, lambda t: t.to(self.param_dtype(t.dtype)), batch)
