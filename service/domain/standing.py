"""What the past of a job says about its turn: how long it waited, when others took workers from it, how it scales.

Kept in the memory of the service that leads and made anew by the next one: losing it costs a little patience, no slot.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType

from service.domain.job import Job, JobState
from service.domain.spec import WorkerBounds

# A turn: so long no equal's waiting counts against who has workers. A larger priority counts at once.
TURN_S = 600.0
# Beyond a turn, one point of priority for each minute of waiting, without an end; a turn is not shortened by others of
# the same age, for what a job earned goes on growing while its own lasts.
AGE_S = 60.0
# A rate is believed when the group has trained so long at one size; a new one weighs a quarter.
SETTLED_S = 5.0
WEIGHT = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """waited_s: while it wanted workers and had none. rates: workers -> tokens/s. shrunk_at: when it was last given
    less than before although its user had not asked for it."""

    waiting_since: datetime | None = None
    waited_s: float = 0.0
    started_at: datetime | None = None
    granted: int = 0
    bounds: WorkerBounds | None = None
    shrunk_at: datetime | None = None
    rates: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))

    def points(self, *, now: datetime) -> int:
        """What waiting adds to the priority; whole, so that a moment's wait takes no workers from an equal."""
        if self.waiting_since is not None:
            age_s = (now - self.waiting_since).total_seconds()
        elif self.started_at is not None and (turn_s := (now - self.started_at).total_seconds()) < TURN_S:
            age_s = self.waited_s + turn_s
        else:
            return 0
        return max(0, math.floor((age_s - TURN_S) / AGE_S))

    def shrunk_for_s(self, *, now: datetime) -> float:
        """Seconds since others took workers from it."""
        return math.inf if self.shrunk_at is None else (now - self.shrunk_at).total_seconds()

    @property
    def scaling(self) -> float:
        """a in rate = c * workers^a, by least squares over the sizes it has run at; 1 where that is not known yet."""
        points = [(math.log(workers), math.log(rate)) for workers, rate in self.rates.items() if rate > 0]
        if len(points) < 2:
            return 1.0
        mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
        slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
        return float(min(1.0, max(0.0, slope)))


def looked_at(before: Standing, job: Job, *, now: datetime) -> Standing:
    """The standing after one more look at the job."""
    return replace(
        _turn(before, job, now), rates=_rates(before.rates, job, now), granted=job.granted, bounds=job.bounds
    )


def _turn(before: Standing, job: Job, now: datetime) -> Standing:
    if not job.granted:
        since = before.waiting_since or (job.since if job.state is JobState.QUEUED else now)
        return replace(before, waiting_since=since, started_at=None, shrunk_at=None)
    after = before
    if before.waiting_since is not None:
        waited_s = (now - before.waiting_since).total_seconds()
        after = replace(before, waiting_since=None, waited_s=waited_s, started_at=now)
    if before.bounds not in (None, job.bounds):
        return replace(after, shrunk_at=None)
    return replace(after, shrunk_at=now) if job.granted < before.granted else after


def _rates(before: Mapping[int, float], job: Job, now: datetime) -> Mapping[int, float]:
    workers, rate = job.progress.workers, job.progress.tokens_per_s
    settled = job.state is JobState.RUNNING and (now - job.since).total_seconds() >= SETTLED_S
    if not (settled and workers and rate and workers == job.granted):
        return before
    known = before.get(workers, rate)
    return MappingProxyType({**before, workers: known + WEIGHT * (rate - known)})
