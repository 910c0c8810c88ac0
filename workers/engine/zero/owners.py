"""Whole-matrix math where ranks hold parts of matrices: each matrix goes to one rank, and what comes out goes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from workers.engine.zero.collectives import Collectives
from workers.engine.zero.flat import Flat
from workers.engine.zero.unit import Slot
from workers.layout.interval import Interval

Place = tuple[Slot, Interval]


class Owners:
    """Of the matrices of one flat vector. Who owns which follows from the layout: no rank has to say it."""

    def __init__(self, flat: Flat, collectives: Collectives, *, sharded: bool, load: list[int]) -> None:
        """load: the work that each rank has from other vectors; that of this one is added."""
        self._unit, self._start, self._numel = flat.unit, flat.state.start, flat.plan.numel
        self._collectives, self._sharded = collectives, sharded
        ranks, whole = range(collectives.world), Interval(0, flat.full_numel)
        self._held = [flat.plan.shard(rank, collectives.world) if sharded else whole for rank in ranks]
        self._owned: list[list[Slot]] = [[] for _ in ranks]
        for slot in flat.plan.slots:
            owner = min(ranks, key=lambda rank: (load[rank], -sum(at.numel for _, at in self._of([slot], rank)), rank))
            self._owned[owner].append(slot)
            load[owner] += slot.numel * min(slot.shape)

    def apply(self, function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
        """`function` of each whole matrix, on this rank's state. values: this rank's state of them. Collective."""
        me, ranks = self._collectives.rank, range(self._collectives.world)
        # Where every rank holds all, the owner needs nothing from the others.
        lenders = [ranks if self._sharded else [owner] for owner in ranks]
        lent = [[self._of(self._owned[to], rank) if rank in lenders[to] else [] for rank in ranks] for to in ranks]
        whole = {slot.name: values.new_empty(slot.numel) for slot in self._owned[me]}
        outgoing = [[_at(values, at, self._start) for _, at in lent[to][me]] for to in ranks]
        for (slot, at), part in self._swap(outgoing, lent[me], values, numel=self._numel if self._sharded else 0):
            _at(whole[slot.name], at, slot.start).copy_(part)
        done = {slot.name: function(whole.pop(slot.name).view(slot.shape)).reshape(-1) for slot in self._owned[me]}
        returned = [[_at(done[slot.name], at, slot.start) for slot, at in self._of(self._owned[me], r)] for r in ranks]
        result = torch.zeros_like(values)
        awaited = [self._of(self._owned[owner], me) for owner in ranks]
        for (_, at), part in self._swap(returned, awaited, values, numel=self._numel):
            _at(result, at, self._start).copy_(part)
        return result

    def _of(self, slots: Sequence[Slot], rank: int) -> list[Place]:
        """What a rank holds of matrices."""
        places = ((slot, slot.interval.intersect(self._held[rank])) for slot in slots)
        return [(slot, at) for slot, at in places if at is not None]

    def _swap(
        self, outgoing: Sequence[list[Tensor]], incoming: Sequence[list[Place]], like: Tensor, *, numel: int
    ) -> list[tuple[Place, Tensor]]:
        """outgoing[r] to rank r; what arrives, with the place that it is for."""
        sends = [torch.cat(parts) if parts else like.new_empty(0) for parts in outgoing]
        lands = [like.new_empty(sum(at.numel for _, at in places)) for places in incoming]
        lands[self._collectives.rank] = sends[self._collectives.rank]
        self._collectives.swap(sends, lands, numel=numel, unit=self._unit).wait()
        found: list[tuple[Place, Tensor]] = []
        for places, values in zip(incoming, lands, strict=True):
            parts = torch.split(values, [at.numel for _, at in places])
            found += zip(places, parts, strict=True)
        return found


def _at(vector: Tensor, place: Interval, start: int) -> Tensor:
    """The elements of a place in a vector that begins at `start`."""
    return vector.narrow(0, place.start - start, place.numel)
