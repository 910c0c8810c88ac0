"""Where each parameter of a unit lies in its flat vectors. No storage, no group."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from workers.engine.units import Grouping
from workers.layout.interval import Interval
from workers.layout.layout import Layout, Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A parameter's place in its flat vector."""

    name: str
    start: int
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def interval(self) -> Interval:
        return Interval(self.start, self.start + self.numel)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatPlan:
    """One flat vector: parameters of one unit, dtype and trainability, one after the other. matrices: those whose
    optimizer looks at them as a whole have vectors of their own, with other state."""

    dtype: torch.dtype
    trainable: bool
    slots: tuple[Slot, ...]
    matrices: bool = False

    @property
    def numel(self) -> int:
        return self.slots[-1].interval.stop if self.slots else 0

    def shard_numel(self, world: int) -> int:
        """Equal on every rank: collectives have static sizes. The tail is padding."""
        return -(-self.numel // world)

    def shard(self, rank: int, world: int) -> Interval:
        """The rank's part of the padded vector."""
        size = self.shard_numel(world)
        return Interval(rank * size, (rank + 1) * size)

    def pieces(self, interval: Interval) -> tuple[Piece, ...]:
        """What an interval of the vector is in coordinates of the model's tensors; empty tensors appear nowhere."""
        return tuple(Piece(slot.name, common.shift(-slot.start)) for slot, common in self.cut(interval))

    def cut(self, interval: Interval) -> Iterator[tuple[Slot, Interval]]:
        for slot in self.slots:
            common = slot.interval.intersect(interval)
            if common is not None:
                yield slot, common


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPlan:
    """A unit's name (the path of its first module) and its flat vectors."""

    name: str
    flats: tuple[FlatPlan, ...]


def plan_of(
    grouping: Grouping, param_dtype: Callable[[torch.dtype], torch.dtype], matrices: Collection[str] = ()
) -> UnitPlan:
    alike: dict[tuple[torch.dtype, bool, bool], list[str]] = {}
    for name, param in grouping.params.items():
        alike.setdefault((param_dtype(param.dtype), param.requires_grad, name in matrices), []).append(name)
    flats = tuple(
        FlatPlan(
            dtype=dtype,
            trainable=trainable,
            matrices=whole,
            slots=_slots([(name, grouping.params[name].shape) for name in names]),
        )
        for (dtype, trainable, whole), names in alike.items()
    )
    return UnitPlan(name=grouping.name, flats=flats)


def layout(units: Iterable[UnitPlan], *, stage: int, world: int) -> Layout[int]:
    """rank -> pieces of the training state, without a group: the whole vector at stage 0, the rank's shard above."""
    flats = [flat for unit in units for flat in unit.flats]
    pieces = {}
    for rank in range(world):
        parts = ((flat, Interval(0, flat.numel) if stage == 0 else flat.shard(rank, world)) for flat in flats)
        pieces[rank] = tuple(piece for flat, part in parts for piece in flat.pieces(part))
    return Layout(pieces)


def _slots(named_shapes: Sequence[tuple[str, Sequence[int]]]) -> tuple[Slot, ...]:
    starts = accumulate((math.prod(shape) for _, shape in named_shapes), initial=0)
    pairs = zip(named_shapes, starts, strict=False)
    return tuple(Slot(name=name, start=start, shape=tuple(shape)) for (name, shape), start in pairs)
