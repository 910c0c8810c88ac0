"""kind -> tier: the second axis of the engine. A stage never asks where, a tier never asks why."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from workers.engine.states import StateKind
from workers.engine.tiers.device import DeviceTier
from workers.engine.tiers.protocol import StateKey, Tier


class Placement:
    """Routes every key to the tier of its kind, and counts what rests where."""

    def __init__(self, tiers: Mapping[StateKind, Tier]) -> None:
        self._tiers = dict(tiers)
        self._size_bytes: dict[StateKey, int] = {}

    @classmethod
    def on_device(cls, device: torch.device) -> Placement:
        tier = DeviceTier(device)
        return cls(dict.fromkeys(StateKind, tier))

    def allocate(self, key: StateKey, *, numel: int, dtype: torch.dtype) -> None:
        self._tiers[key.kind].allocate(key, numel=numel, dtype=dtype)
        self._size_bytes[key] = numel * dtype.itemsize

    def ahead(self, key: StateKey) -> None:
        self._tiers[key.kind].ahead(key)

    def fetch(self, key: StateKey) -> torch.Tensor:
        return self._tiers[key.kind].fetch(key)

    def commit(self, key: StateKey, values: torch.Tensor) -> None:
        self._tiers[key.kind].commit(key, values)

    def clear(self) -> None:
        """Forget every key; tensors that somebody still holds stay alive."""
        for key in self._size_bytes:
            self._tiers[key.kind].drop(key)
        self._size_bytes.clear()

    def size_bytes(self) -> dict[StateKind, dict[str, int]]:
        """kind -> tier -> bytes at rest."""
        sizes: dict[StateKind, dict[str, int]] = {}
        for key, size in self._size_bytes.items():
            tiers = sizes.setdefault(key.kind, {})
            name = self._tiers[key.kind].name
            tiers[name] = tiers.get(name, 0) + size
        return sizes
