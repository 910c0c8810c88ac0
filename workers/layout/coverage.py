"""Which elements are held, by whom, and which by nobody."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from workers.layout.interval import Interval
from workers.layout.layout import Layout, Owner, Piece


@dataclass(frozen=True, slots=True)
class Segment(Generic[Owner]):
    """A piece all of whose elements have the same holders."""

    piece: Piece
    holders: tuple[Owner, ...]


@dataclass(frozen=True, slots=True)
class Coverage(Generic[Owner]):
    """A layout read the other way round: tensor -> disjoint segments in ascending order, only where somebody holds."""

    segments: Mapping[str, tuple[Segment[Owner], ...]]

    def within(self, piece: Piece) -> Iterator[Segment[Owner]]:
        """The parts of `piece` in ascending order, cut where holders change; a part that nobody holds has none."""
        segments = self.segments.get(piece.tensor, ())
        place, stop = piece.interval.start, piece.interval.stop
        first = bisect_right(segments, place, key=lambda segment: segment.piece.interval.stop)
        for segment in segments[first:]:
            common = segment.piece.interval.intersect(Interval(place, stop)) if place < stop else None
            if common is None:
                break
            if place < common.start:
                yield Segment(Piece(piece.tensor, Interval(place, common.start)), ())
            yield Segment(Piece(piece.tensor, common), segment.holders)
            place = common.stop
        if place < stop:
            yield Segment(Piece(piece.tensor, Interval(place, stop)), ())


def coverage(layout: Layout[Owner]) -> Coverage[Owner]:
    """Who holds what; holders in the layout's own order."""
    by_tensor: dict[str, list[tuple[Interval, Owner]]] = defaultdict(list)
    for owner, piece in layout:
        if piece.numel:
            by_tensor[piece.tensor].append((piece.interval, owner))
    return Coverage({tensor: tuple(_segments(tensor, claims)) for tensor, claims in by_tensor.items()})


def missing(whole: Mapping[str, int], layout: Layout[Owner]) -> tuple[Piece, ...]:
    """The elements of the tensors (name -> numel) that no owner holds."""
    held = coverage(layout)
    everything = (Piece(tensor, Interval(0, numel)) for tensor, numel in whole.items())
    return merged(part.piece for piece in everything for part in held.within(piece) if not part.holders)


def merged(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """The same elements in as few pieces as there can be, sorted; empty ones vanish."""
    result: list[Piece] = []
    for piece in sorted(piece for piece in pieces if piece.numel):
        last = result[-1] if result else None
        if last and last.tensor == piece.tensor and piece.interval.start <= last.interval.stop:
            stop = max(last.interval.stop, piece.interval.stop)
            result[-1] = Piece(piece.tensor, Interval(last.interval.start, stop))
        else:
            result.append(piece)
    return tuple(result)


def _segments(tensor: str, claims: Sequence[tuple[Interval, Owner]]) -> Iterator[Segment[Owner]]:
    borders = sorted({border for interval, _ in claims for border in (interval.start, interval.stop)})
    holders: list[dict[Owner, None]] = [{} for _ in borders]
    for interval, owner in claims:
        for index in range(bisect_left(borders, interval.start), bisect_left(borders, interval.stop)):
            holders[index][owner] = None
    for index, owners in enumerate(holders):
        if owners:
            yield Segment(Piece(tensor, Interval(borders[index], borders[index + 1])), tuple(owners))
