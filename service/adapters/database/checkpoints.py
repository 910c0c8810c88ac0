"""Rows of checkpoints and of the wishes for one."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.database import tables
from service.domain.checkpoint import CheckpointRecord, CheckpointRequest

_T = tables.checkpoints
_R = tables.checkpoint_requests
_FIELDS = ("job_id", "step", "uri", "size_bytes", "files", "duration_s", "attempt", "at", "pinned")


class SqlCheckpoints:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, record: CheckpointRecord) -> None:
        query = sa.select(_T.c.attempt, _T.c.pinned).where(_T.c.job_id == record.job_id, _T.c.step == record.step)
        known = (await self._connection.execute(query)).one_or_none()
        if known is not None and known.attempt > record.attempt:
            return
        await self.drop(record.job_id, record.step)
        values = {name: getattr(record, name) for name in _FIELDS}
        values["pinned"] = record.pinned or (known is not None and known.pinned)
        await self._connection.execute(_T.insert().values(**values))

    async def pin(self, job_id: str, step: int, *, pinned: bool) -> None:
        row = _T.update().where(_T.c.job_id == job_id, _T.c.step == step)
        await self._connection.execute(row.values(pinned=pinned))

    async def drop(self, job_id: str, step: int) -> None:
        await self._connection.execute(_T.delete().where(_T.c.job_id == job_id, _T.c.step == step))

    async def of(self, job_id: str) -> tuple[CheckpointRecord, ...]:
        query = sa.select(_T).where(_T.c.job_id == job_id).order_by(_T.c.step.desc())
        return tuple(CheckpointRecord(**row) for row in (await self._connection.execute(query)).mappings())

    async def request(self, request: CheckpointRequest) -> None:
        values = {"id": request.id, "job_id": request.job_id, "at": request.at, "met_at_step": request.met_at_step}
        await self._connection.execute(_R.insert().values(**values))

    async def pending_request(self, job_id: str) -> CheckpointRequest | None:
        query = sa.select(_R).where(_R.c.job_id == job_id, _R.c.met_at_step.is_(None)).order_by(_R.c.id).limit(1)
        found = (await self._connection.execute(query)).mappings().one_or_none()
        return None if found is None else CheckpointRequest(**found)

    async def meet(self, request_id: str, step: int) -> None:
        await self._connection.execute(_R.update().where(_R.c.id == request_id).values(met_at_step=step))
