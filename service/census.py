"""The numbers behind /metrics and /readyz."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from service.domain.errors import Unavailable
from service.domain.job import JobState
from service.domain.vitals import Strides, measured_over_predicted
from service.ports import Clock, Database, RayHost


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Gauges with bounded labels: jobs by state, live attempts, workers that train, the newest notice. still_s: the
    longest that a job which should train has made no step. events: what controllers told this process, by kind.
    disks: folder -> (free, size) in bytes."""

    jobs: Mapping[JobState, int]
    attempts: int
    workers_desired: int
    workers_actual: int
    newest_notice: int
    still_s: float
    measured_over_predicted: float
    events: Mapping[str, int]
    disks: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """`checks`: name -> "ok" or what is wrong; ready when all are ok."""

    ready: bool
    checks: Mapping[str, str]


@dataclass(slots=True, kw_only=True)
class Census:
    database: Database
    ray: RayHost
    clock: Clock
    tally: Counter[str]
    disks: Callable[[], Mapping[str, tuple[int, int]]]
    _strides: Strides = field(default_factory=Strides)

    async def read(self) -> Numbers:
        async with self.database.read() as work:
            counts = await work.jobs.counts()
            attempts = await work.attempts.open()
            jobs = await work.jobs.open()
            _, newest = await work.notices.span()
        now_s = self.clock.monotonic()
        self._strides = self._strides.seen(jobs, now_s=now_s)
        return Numbers(
            jobs={state: counts.get(state, 0) for state in JobState},
            attempts=sum(not attempt.ended for attempt in attempts),
            workers_desired=sum(job.granted for job in jobs),
            workers_actual=sum(job.progress.workers for job in jobs),
            newest_notice=newest,
            still_s=self._strides.longest_s(now_s=now_s),
            measured_over_predicted=measured_over_predicted(jobs),
            events=dict(self.tally),
            disks=await asyncio.to_thread(self.disks),
        )

    async def readiness(self) -> Readiness:
        """The database answers and Ray can be used; a job that fails does not make the service unready."""
        checks = {"database": "ok", "ray": self.ray.trouble() or "ok"}
        try:
            await self.database.ping()
        except Unavailable as error:
            checks["database"] = error.detail
        return Readiness(ready=all(found == "ok" for found in checks.values()), checks=checks)
