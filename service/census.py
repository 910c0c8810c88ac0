"""The numbers behind /metrics and /readyz."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from service.domain.errors import Unavailable
from service.domain.job import JobState
from service.ports import Database, RayHost


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Gauges with bounded labels: jobs by state, live attempts, workers that train, the newest notice."""

    jobs: Mapping[JobState, int]
    attempts: int
    workers_desired: int
    workers_actual: int
    newest_notice: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """`checks`: name -> "ok" or what is wrong; ready when all are ok."""

    ready: bool
    checks: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    database: Database
    ray: RayHost

    async def read(self) -> Numbers:
        async with self.database.read() as work:
            counts = await work.jobs.counts()
            attempts = await work.attempts.open()
            jobs = await work.jobs.open()
            _, newest = await work.notices.span()
        return Numbers(
            jobs={state: counts.get(state, 0) for state in JobState},
            attempts=sum(not attempt.ended for attempt in attempts),
            workers_desired=sum(job.granted for job in jobs),
            workers_actual=sum(job.progress.workers for job in jobs),
            newest_notice=newest,
        )

    async def readiness(self) -> Readiness:
        """The database answers and Ray can be used; a job that fails does not make the service unready."""
        checks = {"database": "ok", "ray": self.ray.trouble() or "ok"}
        try:
            await self.database.ping()
        except Unavailable as error:
            checks["database"] = error.detail
        return Readiness(ready=all(found == "ok" for found in checks.values()), checks=checks)
