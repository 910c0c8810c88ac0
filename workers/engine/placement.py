"""kind -> tier: the second axis of the engine. A stage never asks where, a tier never asks why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import torch

from workers.engine.states import StateKind
from workers.tiers.memory import MemoryTier
from workers.tiers.nvme import NvmeTier
from workers.tiers.protocol import StateKey, Tier


class Placement:
    """Routes every key to the tier of its kind, and counts what rests where."""

    def __init__(self, tiers: Mapping[StateKind, Tier], *, near: Tier, ratio: float = 1.0) -> None:
        """near: where the model computes. ratio: the part of the elements that rests on its kind's own tier; the rest
        stays near. A flat vector is not divided, so the part is met within half of the largest one."""
        if not 0 <= ratio <= 1:
            raise ValueError(f"ratio is {ratio}; choose a number from 0 to 1")
        self._tiers, self._near, self._ratio = dict(tiers), near, ratio
        self._is_far: dict[int, bool] = {}
        self._numel = self._far_numel = 0
        self._at: dict[StateKey, Tier] = {}
        self._size_bytes: dict[StateKey, int] = {}

    @classmethod
    def of(
        cls,
        device: torch.device,
        *,
        optimizer: str = "none",
        params: str = "none",
        ratio: float = 1.0,
        folder: Path | None = None,
    ) -> Placement:
        """Tiers by name: none, cpu or nvme (which needs a folder). params: the shard of stage 3, which is its own
        master. Gradients that rest as shards go to host memory with the optimizer's state: each is read again in every
        micro-batch. Raises OffloadFailed."""
        near, pinned = MemoryTier(device), device.type == "cuda"
        tiers: dict[str, Tier] = {"none": near, "cpu": MemoryTier(torch.device("cpu"), name="cpu", pinned=pinned)}
        for name in (optimizer, params):
            if name == "nvme" and name not in tiers:
                if folder is None:
                    raise ValueError("offload to nvme without a folder; name one on a fast local disk")
                tiers[name] = NvmeTier(folder, pinned=pinned)
            elif name not in tiers:
                raise ValueError(f"no tier {name!r}; choose none, cpu or nvme")
        by_kind = dict.fromkeys(StateKind, tiers[optimizer])
        by_kind[StateKind.PARAM] = tiers[params]
        by_kind[StateKind.GRAD] = near if optimizer == "none" else tiers["cpu"]
        return cls(by_kind, near=near, ratio=ratio)

    def renewed(self) -> Placement:
        """An empty one by the same rule; this one keeps what it has for as long as somebody holds it."""
        fresh = {tier: tier.renewed() for tier in {*self._tiers.values(), self._near}}
        tiers = {kind: fresh[tier] for kind, tier in self._tiers.items()}
        return Placement(tiers, near=fresh[self._near], ratio=self._ratio)

    def allocate(self, key: StateKey, *, numel: int, dtype: torch.dtype, near: bool = False) -> None:
        """Zeros. near: to be held where the model computes, whatever its kind."""
        tier = self._tiers[key.kind] if not near and self._goes_far(key.flat, numel) else self._near
        tier.allocate(key, numel=numel, dtype=dtype)
        self._at[key], self._size_bytes[key] = tier, numel * dtype.itemsize

    def ahead(self, key: StateKey) -> None:
        self._at[key].ahead(key)

    def fetch(self, key: StateKey) -> torch.Tensor:
        return self._at[key].fetch(key)

    def release(self, key: StateKey) -> None:
        self._at[key].release(key)

    def commit(self, key: StateKey, values: torch.Tensor) -> None:
        self._at[key].commit(key, values)

    def read(self, key: StateKey, start: int, numel: int) -> torch.Tensor:
        """A part of the values: a view where they rest in memory, else a copy."""
        tier = self._at[key]
        part = tier.fetch(key).narrow(0, start, numel)
        part = part if tier.stays else part.clone()
        tier.release(key)
        return part

    def stays(self, key: StateKey) -> bool:
        return self._at[key].stays

    @property
    def staging_bytes(self) -> int:
        return sum(tier.staging_bytes for tier in set(self._tiers.values()))

    def size_bytes(self) -> dict[StateKind, dict[str, int]]:
        """kind -> tier -> bytes at rest."""
        sizes: dict[StateKind, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for key, size in self._size_bytes.items():
            sizes[key.kind][self._at[key].name] += size
        return {kind: dict(tiers) for kind, tiers in sizes.items()}

    def _goes_far(self, flat: int, numel: int) -> bool:
        """One answer for all kinds of a flat vector: whichever keeps the part so far nearest to the ratio."""
        if flat not in self._is_far:
            self._numel += numel
            self._is_far[flat] = self._ratio > 0 and self._far_numel + numel / 2 <= self._ratio * self._numel
            self._far_numel += numel * self._is_far[flat]
        return self._is_far[flat]
