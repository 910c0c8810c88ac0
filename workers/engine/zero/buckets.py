"""Vectors that gradients cross the group in, used again and again: a fresh one of some megabytes costs page faults."""

from __future__ import annotations

import torch
from torch import Tensor

from workers.engine.zero.flat import Flat

# Idle buckets kept per dtype: what two reductions under way need, one vector to send and one to land in each.
KEPT = 4


class Bucket:
    """A vector, seen at the length that its present use needs."""

    def __init__(self, base: Tensor) -> None:
        self.base = base
        self.vector = base
        self._places: dict[int, list[Tensor]] = {}

    def places(self, flat: Flat) -> list[Tensor]:
        """Where each parameter's gradient lies in the vector."""
        places = self._places.get(flat.index)
        if places is None:
            places = self._places[flat.index] = flat.views(self.base)
        return places


class Buckets:
    """Lends the smallest idle bucket that is large enough; units of many sizes do not add up to many buckets."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._idle: dict[torch.dtype, list[Bucket]] = {}
        self.size_bytes = 0

    def take(self, numel: int, dtype: torch.dtype) -> Bucket:
        idle = self._idle.setdefault(dtype, [])
        fitting = [bucket for bucket in idle if bucket.base.numel() >= numel]
        if fitting:
            bucket = min(fitting, key=_capacity)
            idle.remove(bucket)
        else:
            bucket = Bucket(torch.zeros(numel, dtype=dtype, device=self._device))
            self.size_bytes += numel * dtype.itemsize
        bucket.vector = bucket.base.narrow(0, 0, numel)
        return bucket

    def give(self, bucket: Bucket) -> None:
        idle = self._idle[bucket.base.dtype]
        idle.append(bucket)
        if len(idle) > KEPT:
            smallest = min(idle, key=_capacity)
            idle.remove(smallest)
            self.size_bytes -= smallest.base.numel() * smallest.base.itemsize


def _capacity(bucket: Bucket) -> int:
    return bucket.base.numel()
