"""What is kept of what only grows: by count for every job, by age for those that ended long ago.

A task of its own, in small transactions: no request and no tick of the reconciler waits for more than a batch of it.
Two services that do it at once do no harm. Charts keep their extremes: samples are thinned, not cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from service.domain.errors import JobNotFound
from service.domain.job import Job
from service.domain.series import Stretch, together
from service.ports import Clock, Database, Files, UnitOfWork
from service.settings import Settings

log = logging.getLogger(__name__)

EVERY_S = 60.0
JOBS_AT_ONCE = 20
BATCH_ROWS = 2000
# Each may hold the samples of many ranks.
NOTICES_AT_ONCE = 200
PAUSE_S = 0.02
# Of a series of a job that ended long ago.
OLD_SAMPLES = 2000

Pruning = Callable[[UnitOfWork], Awaitable[int]]
Working = Callable[[UnitOfWork, Stretch], Awaitable[int]]


@dataclass(slots=True, kw_only=True)
class Retention:
    database: Database
    clock: Clock
    files: Files
    settings: Settings
    _cursor: str | None = None
    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="retention")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                await self.turn()
            except Exception as error:
                log.warning("retention: %s", error, exc_info=error)
            await asyncio.sleep(EVERY_S)

    async def turn(self) -> None:
        """The outbox, and the next jobs: each comes round again after all others."""
        kept = self.settings.retained_notices
        await self._in_batches(lambda work: work.notices.prune(keep=kept, limit=NOTICES_AT_ONCE), NOTICES_AT_ONCE)
        async with self.database.read() as work:
            page = await work.jobs.page(state=None, name=None, limit=JOBS_AT_ONCE, cursor=self._cursor)
        for job in page.items:
            with contextlib.suppress(JobNotFound):
                await self._of(job)
        self._cursor = page.next_cursor

    async def _of(self, job: Job) -> None:
        settings = self.settings
        old = job.ended_at is not None and self.clock.now() - job.ended_at > timedelta(days=settings.retained_days)
        samples = min(OLD_SAMPLES, settings.retained_samples) if old else settings.retained_samples
        lines = 0 if old else settings.retained_log_lines
        if await roll(self.database, job.id):
            await thin(self.database, job.id, keep=samples)
        await self._in_batches(lambda work: work.logs.prune(job.id, keep=lines, limit=BATCH_ROWS))
        await self._in_batches(lambda work: work.events.prune(job.id, keep=settings.retained_events, limit=BATCH_ROWS))
        await self._in_batches(lambda work: work.attempts.forget_tokens(job.id))
        if old:
            await self.files.remove_folder(str(settings.home / "logs" / job.id))

    async def _in_batches(self, prune: Pruning, limit: int = BATCH_ROWS) -> None:
        while True:
            async with self.database.write() as work:
                gone = await prune(work)
                await work.commit()
            if gone < limit:
                return
            await asyncio.sleep(PAUSE_S)


async def roll(database: Database, job_id: str) -> bool:
    """Whether all is rolled up; not where a job went back to earlier steps, or another service was first. Raises
    JobNotFound."""
    async with database.read() as work:
        found = await work.samples.unrolled(job_id, rows=BATCH_ROWS)
    async for made in _through(database, job_id, found, lambda work, stretch: work.samples.roll(job_id, stretch)):
        if 0 in made:
            return False
    return True


async def thin(database: Database, job_id: str, *, keep: int) -> None:
    """Until no series has more than `keep` samples. Raises JobNotFound."""
    gone = 1
    while gone:
        async with database.read() as work:
            found = await work.samples.crowded(job_id, keep=keep, rows=BATCH_ROWS)
        thinned = _through(database, job_id, found, lambda work, stretch: work.samples.thin(job_id, stretch))
        gone = sum([sum(went) async for went in thinned])


async def _through(database: Database, job_id: str, found: Sequence[Stretch], do: Working) -> AsyncIterator[list[int]]:
    """What `do` returned for the stretches of each of the short transactions."""
    for pack in together(found, rows=BATCH_ROWS):
        async with database.write() as work:
            await work.jobs.get(job_id)  # its lock: no sample comes in between
            done = [await do(work, stretch) for stretch in pack]
            await work.commit()
        yield done
        await asyncio.sleep(PAUSE_S)
