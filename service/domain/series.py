"""A chart's worth of samples: at most so many points, none of which hides an extreme."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

GROUP_RANK = -1  # the rank under which a sample of the whole group is stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One bucket of steps. `value` is the last one (at `step`); None: not a finite number. `count`: samples in it."""

    step: int
    value: float | None
    min: float | None
    max: float | None
    count: int
    generation: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """`total`: samples there are; `points` are fewer where they were downsampled. `rank` None: the group's."""

    name: str
    rank: int | None
    total: int
    points: tuple[Point, ...]
