"""FSDP2's collectives, counted: what torch calls in place of its own, and does the same."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from workers.engine.states import Traffic

TRAIL_BITS = 20


class Meter:
    """Counts over all groups that an engine has belonged to. `trail`: a digest of which units communicated, in which
    order, in the present one; ranks whose trails differ have mixed up each other's units."""

    def __init__(self) -> None:
        self._elements: dict[str, int] = {}
        self._bytes_sent = self._calls = 0
        self.waited_s = 0.0
        self.trail = 0

    def count(self, name: str, unit: int, whole: Tensor, world: int, *, times: int = 1) -> None:
        """times: 2 for an all-reduce, which gathers what it has reduced."""
        if world > 1:
            self.trail = zlib.crc32(f"{self.trail} {name} {unit}".encode()) % (1 << TRAIL_BITS)
            self._elements[name] = self._elements.get(name, 0) + times * whole.numel()
            self._bytes_sent += times * whole.numel() * whole.itemsize * (world - 1) // world
            self._calls += 1

    def total(self) -> Traffic:
        return Traffic(
            elements=dict(self._elements),
            bytes_sent=self._bytes_sent,
            calls=self._calls,
            waited_s=self.waited_s,
        )


class _Comm:
    def __init__(self, meter: Meter, unit: int) -> None:
        self._meter, self._unit = meter, unit

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(size, dtype=dtype, device=device)


class CountedGather(_Comm):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> Any:
        began = time.perf_counter()
        work = dist.all_gather_single(output_tensor, input_tensor, group=group, async_op=async_op)
        self._meter.waited_s += time.perf_counter() - began
        self._meter.count("all_gather", self._unit, output_tensor, group.size())
        return work


class CountedScatter(_Comm):
    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> Any:
        began = time.perf_counter()
        work = dist.reduce_scatter_single(output_tensor, input_tensor, op=op, group=group, async_op=async_op)
        self._meter.waited_s += time.perf_counter() - began
        self._meter.count("reduce_scatter", self._unit, input_tensor, group.size())
        return work
