"""What all ranks must know of a step before any state changes, in one all-reduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from torch import Tensor

from workers.engine.norms import sum_of_squares
from workers.engine.zero import exact
from workers.engine.zero.collectives import Collectives
from workers.engine.zero.flat import Unit
from workers.engine.zero.prefetch import Habits
from workers.engine.zero.reduction import Reducer


@dataclass(frozen=True, slots=True, kw_only=True)
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
    grads = [reducer.own_gradient(flat) for flat in flats]
    peak = collectives.largest(exact.largest(grads)) if collectives.ordered else 0.0
    squares, bad = exact.squares(grads, peak) if collectives.ordered else _rounded(grads)
    late = any(flat.holds_gradients() for flat in flats)
    touched, votes = reducer.touched, habits.votes(rank=collectives.rank)
    sums = iter(collectives.agree([*squares, bad, late, *tally, *touched, *votes]))
    words = tuple(islice(sums, len(squares)))
    return Agreed(
        square=exact.joined(words, peak) if collectives.ordered else words[0],
        bad=next(sums),
        late=next(sums),
        tally=tuple(islice(sums, len(tally))),
        touched=tuple(islice(sums, len(touched))),
        habits=tuple(sums),
    )


def _rounded(grads: Sequence[Tensor]) -> tuple[tuple[float, ...], int]:
    square, bad = sum_of_squares(grads)
    return (square,), bad
