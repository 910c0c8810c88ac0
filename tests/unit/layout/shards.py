"""Layouts to test with, after the rules of real engines, and real lists to move about."""

from __future__ import annotations

from hypothesis import strategies as st

from workers.layout.interval import Interval
from workers.layout.layout import Layout, Piece

Values = dict[int, dict[tuple[str, int], float]]


def replicated(sizes: dict[str, int], world: int) -> Layout[int]:
    everything = tuple(Piece(name, Interval(0, numel)) for name, numel in sizes.items())
    return Layout({rank: everything for rank in range(world)})


def flat(sizes: dict[str, int], world: int) -> Layout[int]:
    """One flat unit: the tensors one after the other, cut evenly, the last shard shorter."""
    total = sum(sizes.values())
    shard = -(-total // world)
    cuts = [Interval(min(rank * shard, total), min((rank + 1) * shard, total)) for rank in range(world)]
    pieces: dict[int, list[Piece]] = {rank: [] for rank in range(world)}
    offset = 0
    for name, numel in sizes.items():
        for rank, cut in enumerate(cuts):
            if common := cut.intersect(Interval(offset, offset + numel)):
                pieces[rank].append(Piece(name, common.shift(-offset)))
        offset += numel
    return Layout({rank: tuple(parts) for rank, parts in pieces.items()})


def per_tensor(sizes: dict[str, int], world: int) -> Layout[int]:
    """Each tensor is cut by itself, as FSDP2 cuts its first dimension."""
    pieces: dict[int, list[Piece]] = {rank: [] for rank in range(world)}
    for name, numel in sizes.items():
        for rank, parts in flat({name: numel}, world).pieces.items():
            pieces[rank].extend(parts)
    return Layout({rank: tuple(parts) for rank, parts in pieces.items()})


RULES = (replicated, flat, per_tensor)

sizes = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 40), min_size=1)
worlds = st.integers(1, 5)
layouts = st.builds(lambda rule, sizes, world: (rule, sizes, world), st.sampled_from(RULES), sizes, worlds)


@st.composite
def any_layout(draw: st.DrawFn, owners: int = 4) -> Layout[int]:
    """No rule at all: overlaps, holes and empty pieces."""
    pieces: dict[int, list[Piece]] = {owner: [] for owner in range(draw(st.integers(1, owners)))}
    for parts in pieces.values():
        for _ in range(draw(st.integers(0, 4))):
            start, stop = sorted(draw(st.tuples(st.integers(0, 20), st.integers(0, 20))))
            parts.append(Piece(draw(st.sampled_from("ab")), Interval(start, stop)))
    return Layout({owner: tuple(parts) for owner, parts in pieces.items()})


def elements(pieces: tuple[Piece, ...]) -> list[tuple[str, int]]:
    return [(piece.tensor, i) for piece in pieces for i in range(piece.interval.start, piece.interval.stop)]


def value(element: tuple[str, int]) -> float:
    return hash(element) / 7


def filled(layout: Layout[int]) -> Values:
    return {owner: {element: value(element) for element in elements(parts)} for owner, parts in layout.pieces.items()}
