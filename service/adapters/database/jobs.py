"""Rows of jobs and of submissions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.database import tables
from service.domain.errors import JobNotFound, StaleWrite
from service.domain.job import TERMINAL, Intent, Job, JobState, Progress
from service.domain.page import Page
from service.domain.spec import JobSpec, WorkerBounds
from service.domain.text import askable

_T = tables.jobs
READ_AT_ONCE = 500


@dataclass(slots=True)
class Known:
    """The open jobs as they were read last. A version is written once, so only those of another one are read again."""

    jobs: Mapping[str, Job] = field(default_factory=dict)


class SqlJobs:
    def __init__(self, connection: AsyncConnection, *, locks: bool, known: Known) -> None:
        self._connection = connection
        self._locks = locks
        # A unit that writes sees what may never be committed.
        self._known = Known() if locks else known

    async def add(self, job: Job) -> None:
        await self._connection.execute(_T.insert().values(**_row(job)))

    async def get(self, job_id: str, *, even_deleted: bool = False) -> Job:
        found = None
        if askable(job_id):
            query = sa.select(_T).where(_T.c.id == job_id)
            if self._locks:
                query = query.with_for_update()
            found = (await self._connection.execute(query)).mappings().one_or_none()
        if found is None or (found["deleted_at"] is not None and not even_deleted):
            raise JobNotFound(job_id)
        return _job(found)

    async def save(self, job: Job) -> Job:
        values = {**_row(job), "version": job.version + 1}
        change = _T.update().where(_T.c.id == job.id, _T.c.version == job.version).values(**values)
        if (await self._connection.execute(change)).rowcount != 1:
            raise StaleWrite(job_id=job.id, version=job.version)
        return replace(job, version=job.version + 1)

    async def page(self, *, state: JobState | None, name: str | None, limit: int, cursor: str | None) -> Page[Job]:
        query = sa.select(_T).where(_T.c.deleted_at.is_(None)).order_by(_T.c.id.desc()).limit(limit + 1)
        if state is not None:
            query = query.where(_T.c.state == str(state))
        if name is not None:
            query = query.where(_T.c.name == name)
        if cursor is not None:
            query = query.where(_T.c.id < cursor)
        found = [_job(row) for row in (await self._connection.execute(query)).mappings()]
        return Page(items=tuple(found[:limit]), next_cursor=found[limit - 1].id if len(found) > limit else None)

    async def open(self) -> tuple[Job, ...]:
        ended = [str(state) for state in TERMINAL]
        attempts = tables.attempts
        driven = sa.select(attempts.c.job_id).where(attempts.c.released.is_(False))
        live = sa.or_(_T.c.state.not_in(ended), _T.c.workers > 0, _T.c.deleted_at.is_not(None), _T.c.id.in_(driven))
        found = (await self._connection.execute(sa.select(_T.c.id, _T.c.version).where(live).order_by(_T.c.id))).all()
        known = self._known.jobs
        jobs = {
            job_id: known[job_id] for job_id, version in found if job_id in known and known[job_id].version == version
        }
        missing = [job_id for job_id, _ in found if job_id not in jobs]
        for at in range(0, len(missing), READ_AT_ONCE):
            query = sa.select(_T).where(_T.c.id.in_(missing[at : at + READ_AT_ONCE]))
            jobs |= {row["id"]: _job(row) for row in (await self._connection.execute(query)).mappings()}
        self._known.jobs = jobs
        return tuple(jobs[job_id] for job_id, _ in found if job_id in jobs)

    async def counts(self) -> Mapping[JobState, int]:
        query = sa.select(_T.c.state, sa.func.count()).where(_T.c.deleted_at.is_(None)).group_by(_T.c.state)
        return {JobState(state): count for state, count in await self._connection.execute(query)}

    async def remove(self, job_id: str) -> None:
        await self._connection.execute(_T.delete().where(_T.c.id == job_id))


class SqlSubmissions:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def claim(self, *, key: str, fingerprint: str, job_id: str, at: datetime) -> tuple[str, str]:
        """The unique key decides: of two at once the second waits here until the first has committed."""
        table = tables.submissions
        insert = sa.text(
            "INSERT INTO submissions (key, fingerprint, job_id, at) VALUES (:key, :fingerprint, :job_id, :at) "
            "ON CONFLICT (key) DO NOTHING"
        ).bindparams(sa.bindparam("at", type_=tables.Instant))
        await self._connection.execute(insert, {"key": key, "fingerprint": fingerprint, "job_id": job_id, "at": at})
        query = sa.select(table.c.job_id, table.c.fingerprint).where(table.c.key == key)
        owner, known = (await self._connection.execute(query)).one()
        return owner, known

    async def release(self, job_id: str) -> None:
        await self._connection.execute(tables.submissions.delete().where(tables.submissions.c.job_id == job_id))


# ---- rows <-> values -----------------------------------------------------------------------------------------------


def _row(job: Job) -> dict[str, Any]:
    progress = job.progress
    return {
        "id": job.id,
        "name": job.name,
        "state": str(job.state),
        "reason": job.reason,
        "intent": str(job.intent),
        "min_workers": job.bounds.min,
        "max_workers": job.bounds.max,
        "granted": job.granted,
        "attempt": job.attempt,
        "attempt_id": job.attempt_id,
        "failures": job.failures,
        "failed_at_step": job.failed_at_step,
        "retry_at": job.retry_at,
        "step": progress.step,
        "generation": progress.generation,
        "workers": progress.workers,
        "told": progress.told,
        "loss": progress.loss,
        "tokens_per_s": progress.tokens_per_s,
        "memory": json.dumps(dict(progress.memory)),
        "heard_at": progress.heard_at,
        "stepped_at": progress.stepped_at,
        "spec": job.spec.model_dump_json(),
        "created_at": job.created_at,
        "since": job.since,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "deleted_at": job.deleted_at,
        "version": job.version,
        "key_id": job.key_id,
    }


@lru_cache(maxsize=2048)
def _spec(document: str) -> JobSpec:
    """Specs never change: each is parsed once."""
    return JobSpec.model_validate_json(document)


def _job(row: sa.RowMapping) -> Job:
    progress = Progress(
        step=row["step"],
        generation=row["generation"],
        workers=row["workers"],
        loss=row["loss"],
        tokens_per_s=row["tokens_per_s"],
        memory=json.loads(row["memory"]),
        heard_at=row["heard_at"],
        stepped_at=row["stepped_at"],
        told=row["told"],
    )
    same = ("id", "reason", "granted", "attempt", "attempt_id", "failures", "failed_at_step", "retry_at", "version")
    times = ("created_at", "since", "started_at", "ended_at", "deleted_at")
    return Job(
        **{name: row[name] for name in (*same, *times, "key_id")},
        spec=_spec(row["spec"]),
        state=JobState(row["state"]),
        intent=Intent(row["intent"]),
        bounds=WorkerBounds(min=row["min_workers"], max=row["max_workers"]),
        progress=progress,
    )
