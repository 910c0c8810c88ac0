"""Interleaved rounds: contenders take turns, so a busy minute hits all of them; ratios are taken within a round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Of one figure to the reference's in the same round: the median and the extremes over rounds."""

    median: float
    low: float
    high: float


def order(contenders: Sequence[str], *, rounds: int) -> list[tuple[int, str]]:
    """(round, contender) turns; each round starts with another contender, so that none is always first."""
    count = len(contenders)
    return [(turn, contenders[(turn + place) % count]) for turn in range(rounds) for place in range(count)]


def measure(
    contenders: Sequence[str],
    *,
    rounds: int,
    turn: Callable[[str], Figures],
    go_on: Callable[[int], bool] = lambda done: True,
) -> dict[str, list[Figures]]:
    """The figures of each contender, one entry per round in the order of rounds. go_on: whether another round fits,
    after so many that are done."""
    found: dict[str, list[Figures]] = {contender: [] for contender in contenders}
    turns, count = order(contenders, rounds=rounds), len(contenders)
    for number in range(rounds):
        if number and not go_on(number):
            break
        for _, contender in turns[number * count : (number + 1) * count]:
            found[contender].append(turn(contender))
    return found


def median(found: Sequence[Figures], name: str) -> float:
    return statistics.median(figures[name] for figures in found)


def ratio(found: Sequence[Figures], reference: Sequence[Figures], name: str) -> Ratio:
    """Raises ValueError where the two did not run the same rounds."""
    ratios = [ours[name] / theirs[name] for ours, theirs in zip(found, reference, strict=True)]
    return Ratio(median=statistics.median(ratios), low=min(ratios), high=max(ratios))
