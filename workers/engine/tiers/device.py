"""The tier where the model computes: values never travel."""

from __future__ import annotations

import torch
from torch import Tensor

from workers.engine.tiers.protocol import StateKey


class DeviceTier:
    name = "device"
    stays = True
    staging_bytes = 0

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._values: dict[StateKey, Tensor] = {}

    def allocate(self, key: StateKey, *, numel: int, dtype: torch.dtype) -> None:
        self._values[key] = torch.zeros(numel, dtype=dtype, device=self._device)

    def ahead(self, key: StateKey) -> None:
        """Already near."""

    def fetch(self, key: StateKey) -> Tensor:
        return self._values[key]

    def release(self, key: StateKey) -> None:
        """Nothing was lent."""

    def commit(self, key: StateKey, values: Tensor) -> None:
        if values is not self._values[key]:
            self._values[key].copy_(values)

    def renewed(self) -> DeviceTier:
        return DeviceTier(self._device)
