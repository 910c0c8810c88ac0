"""Where several owners hold the same elements: who gives which, so that all give about as much."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from workers.layout.coverage import Segment, coverage, merged
from workers.layout.interval import Interval
from workers.layout.layout import Layout, Owner, Piece

# A piece is cut only into parts of at least so many elements: below that a message costs more than its bytes.
GRAIN = 4096


def once(layout: Layout[Owner], *, grain: int = GRAIN) -> Layout[Owner]:
    """The same elements, each with exactly one of its holders, evenly: what each owner writes of a replicated state."""
    segments = [segment for parts in coverage(layout).segments.values() for segment in parts]
    given: dict[Owner, list[Piece]] = {owner: [] for owner in layout.pieces}
    for index, parts in enumerate(share_out(segments, grain=grain)):
        for owner, interval in parts:
            given[owner].append(Piece(segments[index].piece.tensor, interval))
    return Layout({owner: merged(pieces) for owner, pieces in given.items()})


def share_out(segments: Sequence[Segment[Owner]], *, grain: int) -> list[list[tuple[Owner, Interval]]]:
    """For each segment, which holder gives which part of it. Every segment has at least one holder.

    What only one can give is counted first; then the largest segments fill up whoever gives least so far.
    """
    load: dict[Owner, int] = defaultdict(int)
    shares: list[list[tuple[Owner, Interval]]] = [[] for _ in segments]
    order = sorted(range(len(segments)), key=lambda i: (len(segments[i].holders) > 1, -segments[i].piece.numel))
    for index in order:
        segment = segments[index]
        place = segment.piece.interval.start
        for owner, numel in _amounts(segment, load, grain):
            shares[index].append((owner, Interval(place, place + numel)))
            place += numel
            load[owner] += numel
    return shares


def _amounts(segment: Segment[Owner], load: Mapping[Owner, int], grain: int) -> Iterable[tuple[Owner, int]]:
    """Elements per holder: whole to the least loaded where it is small, else poured like water into their loads."""
    holders, numel = segment.holders, segment.piece.numel
    if len(holders) == 1 or numel < 2 * grain:
        return [(min(holders, key=lambda owner: load.get(owner, 0)), numel)]
    return _poured(holders, numel, load, grain)


def _poured(holders: Sequence[Owner], numel: int, load: Mapping[Owner, int], grain: int) -> Iterator[tuple[Owner, int]]:
    level = _level([load.get(owner, 0) for owner in holders], numel)
    below = [owner for owner in holders if load.get(owner, 0) < level]
    filled = cut = 0
    for owner in below:
        filled += level - load.get(owner, 0)
        # Cuts fall on the grain nearest to the even division: no owner is off by more than one.
        following = numel if owner == below[-1] else min(numel, round(filled / grain) * grain)
        if following > cut:
            yield owner, following - cut
        cut = max(cut, following)


def _level(loads: Sequence[int], numel: int) -> int:
    """The height, rounded up, to which `numel` more elements fill vessels that hold `loads`."""
    ascending = sorted(loads)
    poured = 0
    for count, load in enumerate(ascending, start=1):
        following = ascending[count] if count < len(ascending) else None
        poured += load
        level = -(-(numel + poured) // count)
        if following is None or level <= following:
            return level
    raise AssertionError("no vessel to fill")
