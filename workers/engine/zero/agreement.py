"""What all ranks must know of a step before any state changes, in one all-reduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workers.engine.zero.collectives import Collectives
from workers.engine.zero.flat import Unit
from workers.engine.zero.prefetch import Habits
from workers.engine.zero.reduction import Reducer
from workers.optimizers import exact
from workers.optimizers.norms import sum_of_squares


@dataclass(frozen=True, slots=True)
class Agreed:
    """Sums over the ranks: squares of the gradient, its non-finite elements, ranks with gradients that came late, the
    caller's tally, per parameter the ranks that had a gradient, and what the passes have shown."""

    square: float
    bad: float
    late: float
    tally: tuple[float, ...]
    touched: tuple[float, ...]
    habits: tuple[float, ...]


def agree(
    collectives: Collectives, reducer: Reducer, units: Sequence[Unit], habits: Habits, tally: Sequence[float]
) -> Agreed:
    flats = [flat for unit in units for flat in unit.trainable]
    grads, peak = [reducer.own_gradient(flat) for flat in flats], 0.0
    if collectives.ordered:
        peak = collectives.largest(exact.largest(grads))
        words, bad = exact.squares(grads, peak)
    else:
        square, bad = sum_of_squares(grads)
        words = (square,)
    late, votes = any(flat.holds_gradients() for flat in flats), habits.votes(rank=collectives.rank)
    words, (bads, lates), *rest = collectives.agree(words, [bad, late], tally, reducer.touched, votes)
    square, (tallies, touched, shown) = exact.joined(words, peak) if collectives.ordered else words[0], rest
    return Agreed(square, bads, lates, tallies, touched, shown)
