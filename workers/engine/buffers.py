"""A model's buffers: whole on every rank, and part of no unit."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def persistent_buffers(model: nn.Module) -> dict[str, Tensor]:
    persistent = model.state_dict(keep_vars=True).keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in persistent}


def move_buffers(model: nn.Module, device: torch.device, dtype: torch.dtype | None) -> None:
    """In place; floating ones to `dtype` where it is given. What is on the meta device gets memory, undefined."""
    for buffer in model.buffers():
        wanted = dtype if dtype is not None and buffer.is_floating_point() else buffer.dtype
        values = torch.empty_like(buffer, device=device) if buffer.is_meta else buffer.data
        buffer.data = values.to(device=device, dtype=wanted)
