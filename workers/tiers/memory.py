"""Memory, where values never travel: the device's, or the host's, page-locked where a GPU reads and writes it."""

from __future__ import annotations

import torch
from torch import Tensor

from workers.tiers.protocol import StateKey


class MemoryTier:
    stays = True
    staging_bytes = 0

    def __init__(self, device: torch.device, *, name: str = "device", pinned: bool = False) -> None:
        self.name, self._device, self._pinned = name, device, pinned
        self._values: dict[StateKey, Tensor] = {}

    def allocate(self, key: StateKey, *, numel: int, dtype: torch.dtype) -> None:
        self._values[key] = torch.zeros(numel, dtype=dtype, device=self._device, pin_memory=self._pinned)

    def ahead(self, key: StateKey) -> None:
        """Already near."""

    def fetch(self, key: StateKey) -> Tensor:
        return self._values[key]

    def release(self, key: StateKey) -> None:
        """Nothing was lent."""

    def commit(self, key: StateKey, values: Tensor) -> None:
        if values is not self._values[key]:
            self._values[key].copy_(values)

    def renewed(self) -> MemoryTier:
        return MemoryTier(self._device, name=self.name, pinned=self._pinned)
