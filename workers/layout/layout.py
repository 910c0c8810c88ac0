"""Who holds which piece of which tensor: a ZeRO shard, a DTensor shard and a checkpoint file are all layouts."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from workers.layout.interval import Interval

Owner = TypeVar("Owner", bound=Hashable)


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """An interval of the row-major flat index of one named (global) tensor."""

    tensor: str
    interval: Interval

    @property
    def numel(self) -> int:
        return self.interval.numel


@dataclass(frozen=True, slots=True)
class Layout(Generic[Owner]):
    """owner -> pieces. Owners are ranks, worker ids or file names; several owners may hold the same piece."""

    pieces: Mapping[Owner, tuple[Piece, ...]] = field(default_factory=dict)

    def of(self, owner: Owner) -> tuple[Piece, ...]:
        return self.pieces.get(owner, ())

    def __iter__(self) -> Iterator[tuple[Owner, Piece]]:
        for owner, pieces in self.pieces.items():
            for piece in pieces:
                yield owner, piece

    def numel(self, owner: Owner) -> int:
        return sum(piece.numel for piece in self.of(owner))
