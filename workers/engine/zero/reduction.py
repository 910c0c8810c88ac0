"""Gradients from the parameters into flat vectors and across the group; each contribution is packed once and added."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.engine.placement import Placement
from workers.engine.states import StateKind
from workers.engine.zero.buckets import Bucket, Buckets
from workers.engine.zero.collectives import Collectives, Pending
from workers.engine.zero.flat import Flat, Unit
from workers.engine.zero.stages import Reduce, Stage
from workers.layout.interval import Interval

# Reductions under way at once: one crosses the group while the next is packed.
DEPTH = 2


@dataclass(slots=True)
class _UnderWay:
    flat: Flat
    packed: Tensor
    bucket: Bucket | None
    landing: Bucket
    pending: Pending
    add: bool
    last: bool


class Reducer:
    """Packs a unit's gradients, sends them, and adds what lands to this rank's gradient. One order on every rank."""

    def __init__(
        self, stage: Stage, collectives: Collectives, placement: Placement, *, dtype: torch.dtype, num_params: int
    ) -> None:
        self._stage, self._collectives, self._placement, self._dtype = stage, collectives, placement, dtype
        self._sharded = stage.shards(StateKind.GRAD)
        self._packs = stage.reduce is Reduce.EACH
        # Whether what is launched now completes the step's gradient.
        self.last = True
        self._under_way: deque[_UnderWay] = deque()
        self._shared: list[Pending] = []
        self._places_at_rest: dict[int, list[Tensor]] = {}
        self.buckets = Buckets(collectives.device)
        self._muted = False
        # 1 where a parameter received a gradient in this step, by the engine's parameter number.
        self.touched = bytearray(num_params)

    def accumulate(self, unit: Unit) -> None:
        """Into the whole gradient at rest, for a reduction at the last micro-batch."""
        for flat in unit.trainable:
            grad = self._placement.fetch(flat.key(StateKind.GRAD))
            if flat.index not in self._places_at_rest:
                self._places_at_rest[flat.index] = flat.views(grad)
            places = self._places_at_rest[flat.index]
            self._write(flat, grad, places, add=not flat.clean)
            flat.clean = False

    def launch(self, unit: Unit) -> None:
        """Start the reduction of what the unit's parameters hold now."""
        if not self._packs:
            self.accumulate(unit)
        for flat in unit.trainable:
            if self._packs:
                self._send_packed(flat)
            else:
                self._send_whole(flat)

    def flush(self, units: Sequence[Unit]) -> None:
        """A further reduction of gradients that came after their unit had left: added to what landed before."""
        for unit in units:
            for flat in unit.trainable:
                self._send_packed(flat)
        self.drain()

    def drain(self) -> None:
        """Every reduction has landed."""
        while self._under_way:
            self._finish(self._under_way.popleft())
        for pending in self._shared:
            pending.wait()
        self._shared.clear()

    def abandon(self) -> None:
        """Forget what is under way: its group is dying."""
        self._under_way.clear()
        self._shared.clear()

    @contextmanager
    def muted(self, units: Sequence[Unit]) -> Iterator[None]:
        """Gradients that arrive meanwhile do not count: zeros take their place. Those from before keep their turn."""
        params = [param for unit in units for flat in unit.trainable for param in flat.params]
        before = [param.grad for param in params]
        for param in params:
            param.grad = None
        self._muted = True
        try:
            yield
        finally:
            self._muted = False
            for param, grad in zip(params, before, strict=True):
                param.grad = grad

    def own_gradient(self, flat: Flat) -> Tensor:
        """This rank's part of the reduced gradient."""
        return self._part(flat, flat.shard)

    def state_gradient(self, flat: Flat) -> Tensor:
        """The reduced gradient of what this rank updates."""
        return self._part(flat, flat.state)

    def start_step(self, units: Sequence[Unit]) -> None:
        """The next gradient to land replaces what is there."""
        self.touched = bytearray(len(self.touched))
        for unit in units:
            for flat in unit.trainable:
                flat.clean = True

    def _part(self, flat: Flat, interval: Interval) -> Tensor:
        grad = self._placement.fetch(flat.key(StateKind.GRAD))
        return grad if self._sharded else grad.narrow(0, interval.start, interval.numel)

    def _send_packed(self, flat: Flat) -> None:
        bucket = self._bucket(flat)
        self._write(flat, bucket.vector, bucket.places(flat), add=False)
        self._send(flat, bucket.vector, bucket=bucket, add=not flat.clean)
        flat.clean = False

    def _send_whole(self, flat: Flat) -> None:
        grad = self._placement.fetch(flat.key(StateKind.GRAD))
        bucket = None if grad.dtype == self._dtype else self._bucket(flat)
        self._send(flat, grad if bucket is None else bucket.vector.copy_(grad), bucket=bucket, add=False)

    def _bucket(self, flat: Flat) -> Bucket:
        self._make_room()
        return self.buckets.take(flat.full_numel, self._dtype)

    def _send(self, flat: Flat, packed: Tensor, *, bucket: Bucket | None, add: bool) -> None:
        self._make_room()
        landing = self.buckets.take(self._collectives.landing_numel(flat.shard.numel), self._dtype)
        pending = self._collectives.scatter(packed, landing.vector, unit=flat.unit)
        self._under_way.append(_UnderWay(flat, packed, bucket, landing, pending, add, self.last))

    def _make_room(self) -> None:
        # By number, never by what happens to have finished: the order of launches must be one on all ranks.
        while len(self._under_way) >= DEPTH:
            self._finish(self._under_way.popleft())

    def _finish(self, reduction: _UnderWay) -> None:
        flat = reduction.flat
        reduction.pending.wait()
        key = flat.key(StateKind.GRAD)
        grad = self._placement.fetch(key)
        self._collectives.land(reduction.packed, reduction.landing.vector, self.own_gradient(flat), add=reduction.add)
        self._placement.commit(key, grad)
        self.buckets.give(reduction.landing)
        if reduction.bucket is not None:
            self.buckets.give(reduction.bucket)
        if self._stage.shares_gradients and reduction.last:
            self._shared.append(self._collectives.gather(grad, self.own_gradient(flat), unit=flat.unit))

    def _write(self, flat: Flat, vector: Tensor, places: Sequence[Tensor], *, add: bool) -> None:
        """Move the parameters' new gradients into `vector`; without `add` all else in it becomes zero."""
        into, grads = [], []
        for number, (place, grad) in enumerate(zip(places, flat.take_gradients(), strict=True), start=flat.first_param):
            if grad is not None and not self._muted:
                into.append(place)
                grads.append(grad)
                self.touched[number] = 1
            elif not add:
                place.zero_()
        if not add and flat.plan.numel < vector.numel():
            vector.narrow(0, flat.plan.numel, vector.numel() - flat.plan.numel).zero_()
        if into:
            (torch._foreach_add_ if add else torch._foreach_copy_)(into, grads)
