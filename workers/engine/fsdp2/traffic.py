"""FSDP2's collectives, counted: what torch calls in place of its own, and does the same."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from workers.engine.states import Meter

TRAIL_BITS = 20


class TrailMeter(Meter):
    """`trail`: a digest of which units communicated, in which order, in the present group; ranks whose trails differ
    have mixed up each other's units."""

    trail = 0

    def start_group(self) -> None:
        super().start_group()
        self.trail = 0

    def note(self, kind: str, unit: str, whole: Tensor, world: int, *, times: int = 1) -> None:
        """times: 2 for an all-reduce, which gathers what it has reduced."""
        if world > 1:
            self.trail = zlib.crc32(f"{self.trail} {kind} {unit}".encode()) % (1 << TRAIL_BITS)
            numel = whole.numel()
            sent_bytes = times * numel * whole.itemsize * (world - 1) // world
            self.count(kind, unit, numel=numel, elements=times * numel, sent_bytes=sent_bytes)

    def all_finished(self) -> None:
        """The ranks have agreed, so nobody waits for an earlier collective."""
        for each in self.recent:
            each.finished = True


class _Counted:
    def __init__(self, meter: TrailMeter, unit: str) -> None:
        self._meter, self._unit = meter, unit

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(size, dtype=dtype, device=device)

    def _run(self, collective: Any, *args: Any, whole: Tensor, **options: Any) -> Any:
        began = time.perf_counter()
        self._meter.note(collective.__name__.removesuffix("_single"), self._unit, whole, options["group"].size())
        work = collective(*args, **options)
        self._meter.waited_s += time.perf_counter() - began
        return work


class CountedGather(_Counted):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> Any:
        options = {"group": group, "async_op": async_op}
        return self._run(dist.all_gather_single, output_tensor, input_tensor, whole=output_tensor, **options)


class CountedScatter(_Counted):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> Any:
        options = {"op": op, "group": group, "async_op": async_op}
        return self._run(dist.reduce_scatter_single, output_tensor, input_tensor, whole=input_tensor, **options)
