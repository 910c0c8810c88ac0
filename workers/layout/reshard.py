"""From one layout to another: what stays, what moves from whom to whom, and what nobody has.

An element moves only where its new owner does not hold it already, so any plan moves the fewest bytes for its owners;
which worker takes which rank is the other half of that, and `order` chooses it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic

from workers.layout.balance import GRAIN, share_out
from workers.layout.coverage import Coverage, Segment, coverage, merged
from workers.layout.layout import Layout, Owner, Piece


@dataclass(frozen=True, slots=True)
class Transfer(Generic[Owner]):
    """`source` holds the piece, `target` wants it."""

    source: Owner
    target: Owner
    piece: Piece


@dataclass(frozen=True, slots=True)
class Plan(Generic[Owner]):
    """For each owner of the new layout: what it keeps, what it receives, and what it must find elsewhere (on disk)."""

    kept: Layout[Owner]
    transfers: tuple[Transfer[Owner], ...]
    missing: Layout[Owner]

    @property
    def moved_numel(self) -> int:
        return sum(transfer.piece.numel for transfer in self.transfers)


def plan(have: Layout[Owner], want: Layout[Owner], *, grain: int = GRAIN) -> Plan[Owner]:
    """How every owner of `want` comes by its pieces. Sources that could give the same are loaded evenly.

    Pure and deterministic: each rank computes the same plan from the same layouts. Transfers are sorted by tensor.
    """
    held = coverage(have)
    kept: dict[Owner, list[Piece]] = defaultdict(list)
    lost: dict[Owner, list[Piece]] = defaultdict(list)
    moves: list[tuple[Owner, Segment[Owner]]] = []
    for target, piece in want:
        for part in held.within(piece):
            if target in part.holders:
                kept[target].append(part.piece)
            elif part.holders:
                moves.append((target, part))
            else:
                lost[target].append(part.piece)
    return Plan(_layout(kept), _transfers(moves, grain), _layout(lost))


def order(
    *, have: Layout[Owner], survivors: Sequence[Owner], joiners: Sequence[Owner], want: Layout[int]
) -> tuple[Owner, ...]:
    """The new rank order of survivors (given in their old one) and joiners that keeps most elements where they are.

    Exact where shards ascend with the rank, as flat units and dim-0 shards do: then some best order never makes
    survivors change places, and joiners fill the gaps (2 -> 3 moves 1/3 of the state with the joiner in the middle,
    1/2 with it at the end).
    """
    world_size = len(survivors) + len(joiners)
    wanted = coverage(want)
    gains = [_gains(have.of(survivor), wanted) for survivor in survivors]
    ranks: dict[int, Owner] = {rank: survivors[index] for index, rank in _matching(gains, world_size)}
    placed = set(ranks.values())
    waiting = iter([*(survivor for survivor in survivors if survivor not in placed), *joiners])
    return tuple(ranks[rank] if rank in ranks else next(waiting) for rank in range(world_size))


def _transfers(moves: Sequence[tuple[Owner, Segment[Owner]]], grain: int) -> tuple[Transfer[Owner], ...]:
    shares = share_out([segment for _, segment in moves], grain=grain)
    pairs: dict[tuple[Owner, Owner], list[Piece]] = defaultdict(list)
    for (target, segment), parts in zip(moves, shares, strict=True):
        for source, interval in parts:
            pairs[source, target].append(Piece(segment.piece.tensor, interval))
    transfers = [Transfer(*pair, piece) for pair, pieces in pairs.items() for piece in merged(pieces)]
    return tuple(sorted(transfers, key=lambda transfer: transfer.piece))


def _layout(pieces: dict[Owner, list[Piece]]) -> Layout[Owner]:
    return Layout({owner: merged(parts) for owner, parts in pieces.items()})


def _gains(held: Iterable[Piece], wanted: Coverage[int]) -> dict[int, int]:
    """rank -> how many elements of `held` it would want."""
    gains: dict[int, int] = defaultdict(int)
    for piece in merged(held):
        for part in wanted.within(piece):
            for rank in part.holders:
                gains[rank] += part.piece.numel
    return gains


def _matching(gains: Sequence[dict[int, int]], world_size: int) -> list[tuple[int, int]]:
    """The pairs (survivor, rank), both ascending, of largest total gain (dynamic programming over both)."""
    best = [[0] * (world_size + 1) for _ in range(len(gains) + 1)]
    for i, gain in enumerate(gains):
        for j in range(world_size):
            taken = best[i][j] + gain.get(j, 0)
            best[i + 1][j + 1] = max(taken, best[i][j + 1], best[i + 1][j])
    pairs: list[tuple[int, int]] = []
    i, j = len(gains), world_size
    while i and j:
        if best[i][j] == best[i][j - 1]:
            j -= 1
        elif best[i][j] == best[i - 1][j]:
            i -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs
