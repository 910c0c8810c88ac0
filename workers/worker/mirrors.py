"""Each worker's shard of one step, twice in host memory: at home, and at its buddy, on another node where there is one.

A lost worker's shard is then still somewhere, and the survivors can go back to that step: no disk is needed.

Note [When a copy counts]. All ranks copy at one agreed boundary and then meet in a barrier. Before it, the copies of
the step before stay untouched; behind it, every buddy has received everything. So at any moment one of the two steps is
whole: the older one while nobody passed the barrier, the newer one as soon as somebody did.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from workers.engine.protocol import Engine
from workers.engine.states import StateKind
from workers.layout import buddies
from workers.layout.interval import Interval
from workers.layout.layout import Piece
from workers.worker.sources import Extras, Patchwork

CHUNK_NUMEL = 16 * 2**20

Item = tuple[StateKind, Piece]


class Group(Protocol):
    """What copying needs of the group owner."""

    def exchange_with(
        self, sends: Sequence[tuple[int, torch.Tensor]], receives: Sequence[tuple[int, torch.Tensor]]
    ) -> None: ...

    def barrier(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Pieces of one step in one block of host memory, which is used again for a later step."""

    step: int
    items: tuple[Item, ...]
    memory: torch.Tensor
    extras: Extras

    def values(self) -> dict[Item, torch.Tensor]:
        sizes = [piece.numel for _, piece in self.items]
        parts = torch.split(self.memory[: sum(sizes)], sizes)
        return dict(zip(self.items, parts, strict=True))


class Mirrors:
    """Of one worker. `own` is its shard, `ward` the shard that it keeps for another."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._own: Copy | None = None
        self._ward: Copy | None = None
        self._arriving: Copy | None = None
        self._spare = torch.empty(0)

    def steps(self) -> frozenset[int]:
        """Of which something is kept."""
        return frozenset(copy.step for copy in self._copies())

    def at(self, step: int) -> Patchwork | None:
        """All that is kept of a step."""
        copies = [copy for copy in self._copies() if copy.step == step]
        if not copies:
            return None
        values: dict[Item, torch.Tensor] = {}
        for copy in copies:
            values.update(copy.values())
        return Patchwork(values, copies[0].extras)

    def forget(self, *, above: int) -> None:
        """Steps that did not happen after all."""
        self._own = _unless(self._own, above)
        self._ward = _unless(self._ward, above)
        self._arriving = _unless(self._arriving, above)

    def take(self, step: int, *, engine: Engine, rank: int, nodes: Sequence[str], group: Group, skipped: int) -> float:
        """Copy this boundary, by every rank at once; returns the seconds. See Note [When a copy counts]."""
        began = time.perf_counter()
        layout = engine.layout()
        extras = _frozen_extras(engine, skipped)
        mine = tuple((kind, piece) for kind in engine.kinds() for piece in layout.of(rank))
        keeper = buddies.choose(dict(enumerate(nodes)))
        buddy, ward = keeper[rank], next(other for other, kept_by in keeper.items() if kept_by == rank)
        theirs = tuple((kind, piece) for kind in engine.kinds() for piece in layout.of(ward))
        self._arriving = None
        arriving = Copy(step=step, items=theirs, memory=self._room(theirs), extras=extras)
        self._swap(engine, mine, arriving, buddy=buddy, ward=ward, group=group)
        self._arriving = arriving
        group.barrier()
        self._keep(step, engine, mine, extras)
        return time.perf_counter() - began

    def _keep(self, step: int, engine: Engine, mine: tuple[Item, ...], extras: Extras) -> None:
        """Behind the barrier: the older step is no longer needed by anybody."""
        memory = self._own.memory if self._own is not None else torch.empty(0)
        own = Copy(step=step, items=mine, memory=_at_least(memory, _numel(mine)), extras=extras)
        self._own = None
        for (kind, piece), place in own.values().items():
            place.copy_(engine.export(kind, piece))
        self._own = own
        self._spare = self._ward.memory if self._ward is not None else torch.empty(0)
        self._ward, self._arriving = self._arriving, None

    def _swap(
        self, engine: Engine, mine: Sequence[Item], arriving: Copy, *, buddy: int, ward: int, group: Group
    ) -> None:
        """Send the own shard to the buddy while the ward's arrives, a chunk of each at a time."""
        total, incoming = _numel(mine), _numel(arriving.items)
        outgoing = _Stream(engine, mine, self._device)
        for first in range(0, max(total, incoming), CHUNK_NUMEL):
            sends = [(buddy, outgoing.take(min(CHUNK_NUMEL, total - first)))] if first < total else []
            place = arriving.memory[first : min(first + CHUNK_NUMEL, incoming)]
            landing = place if self._device.type == "cpu" else torch.empty_like(place, device=self._device)
            group.exchange_with(sends, [(ward, landing)] if first < incoming else [])
            if landing is not place:
                place.copy_(landing)

    def _room(self, items: Sequence[Item]) -> torch.Tensor:
        self._spare = _at_least(self._spare, _numel(items))
        return self._spare

    def _copies(self) -> list[Copy]:
        return [copy for copy in (self._own, self._ward, self._arriving) if copy is not None]


class _Stream:
    """An engine's items one after the other, read in chunks of any size."""

    def __init__(self, engine: Engine, items: Sequence[Item], device: torch.device) -> None:
        self._engine = engine
        self._device = device
        self._items = iter(items)
        self._left: Item | None = None

    def take(self, numel: int) -> torch.Tensor:
        parts: list[torch.Tensor] = []
        while numel:
            kind, piece = self._left if self._left is not None else next(self._items)
            taken = min(numel, piece.numel)
            start, stop = piece.interval.start, piece.interval.stop
            parts.append(self._engine.export(kind, Piece(piece.tensor, Interval(start, start + taken))))
            rest = Piece(piece.tensor, Interval(start + taken, stop))
            self._left = (kind, rest) if rest.numel else None
            numel -= taken
        return torch.cat([part.to(self._device) for part in parts])


def _unless(copy: Copy | None, above: int) -> Copy | None:
    return None if copy is not None and copy.step > above else copy


def _numel(items: Sequence[Item]) -> int:
    return sum(piece.numel for _, piece in items)


def _at_least(memory: torch.Tensor, numel: int) -> torch.Tensor:
    return memory if memory.numel() >= numel else torch.empty(numel)


def _frozen_extras(engine: Engine, skipped: int) -> Extras:
    buffers = {name: buffer.detach().cpu().clone() for name, buffer in engine.buffers().items()}
    return Extras(scalars=engine.scalars(), buffers=buffers, skipped=skipped)
