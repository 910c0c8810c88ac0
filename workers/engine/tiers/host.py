"""Host memory, where the CPU updates it: page-locked where a GPU reads and writes it."""

from __future__ import annotations

import torch

from workers.engine.tiers.device import DeviceTier
from workers.engine.tiers.protocol import StateKey


class HostTier(DeviceTier):
    name = "cpu"

    def __init__(self, *, pinned: bool) -> None:
        super().__init__(torch.device("cpu"))
        self._pinned = pinned

    def allocate(self, key: StateKey, *, numel: int, dtype: torch.dtype) -> None:
        self._values[key] = torch.zeros(numel, dtype=dtype, pin_memory=self._pinned)

    def renewed(self) -> HostTier:
        return HostTier(pinned=self._pinned)
