"""The tier where the model computes: values never travel."""

from __future__ import annotations

import torch

from workers.engine.tiers.protocol import StateKey


class DeviceTier:
    name = "device"

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._values: dict[StateKey, torch.Tensor] = {}

    def allocate(self, key: StateKey, *, numel: int, dtype: torch.dtype) -> None:
        self._values[key] = torch.zeros(numel, dtype=dtype, device=self._device)

    def ahead(self, key: StateKey) -> None:
        """Already near."""

    def fetch(self, key: StateKey) -> torch.Tensor:
        return self._values[key]

    def commit(self, key: StateKey, values: torch.Tensor) -> None:
        if values is not self._values[key]:
            self._values[key].copy_(values)

    def drop(self, key: StateKey) -> None:
        del self._values[key]
