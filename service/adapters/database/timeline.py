"""Rows of events and of log lines: numbered, of one job in the order of time, because its row is locked meanwhile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.database import tables
from service.domain.event import Event
from service.domain.log import LogRecord
from service.domain.text import storable
from service.domain.wire import LogLine

_E = tables.events
_L = tables.log_lines


class SqlEvents:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, event: Event) -> Event:
        own = sa.select(_E.c.at).where(_E.c.job_id == event.job_id)
        last, at = own.order_by(_E.c.id.desc()).limit(1).scalar_subquery(), sa.literal(event.at, tables.Instant)
        insert = _E.insert().values(
            job_id=event.job_id,
            kind=storable(event.kind),
            at=sa.case((last > at, last), else_=at),
            message=storable(event.message),
            attempt=event.attempt,
            generation=event.generation,
            step=event.step,
            payload=json.dumps(dict(event.payload), default=str),
        )
        row = (await self._connection.execute(insert.returning(_E.c.id, _E.c.at))).one()
        return replace(event, id=row.id, at=row.at)

    async def after(self, job_id: str, after: int, limit: int) -> tuple[Event, ...]:
        query = sa.select(_E).where(_E.c.job_id == job_id, _E.c.id > after).order_by(_E.c.id).limit(limit)
        found = (await self._connection.execute(query)).mappings()
        return tuple(Event(**{**row, "payload": json.loads(row["payload"])}) for row in found)

    async def prune(self, job_id: str, *, keep: int, limit: int) -> int:
        return await _prune(self._connection, _E, job_id, keep=keep, limit=limit)


class SqlLogs:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, job_id: str, attempt: int, lines: Sequence[LogLine]) -> None:
        rows = [
            {
                "job_id": job_id,
                "attempt": attempt,
                "rank": line.rank,
                "at": line.at,
                "level": line.level,
                "text": storable(line.text),
            }
            for line in lines
        ]
        if rows:
            await self._connection.execute(_L.insert(), rows)

    async def after(self, job_id: str, *, rank: int | None, after: int, limit: int) -> tuple[LogRecord, ...]:
        query = sa.select(_L).where(_L.c.job_id == job_id, _L.c.id > after).order_by(_L.c.id).limit(limit)
        if rank is not None:
            query = query.where(_L.c.rank == rank)
        return tuple(LogRecord(**row) for row in (await self._connection.execute(query)).mappings())

    async def prune(self, job_id: str, *, keep: int, limit: int) -> int:
        return await _prune(self._connection, _L, job_id, keep=keep, limit=limit)


async def _prune(connection: AsyncConnection, table: sa.Table, job_id: str, *, keep: int, limit: int) -> int:
    own = sa.select(table.c.id).where(table.c.job_id == job_id)
    newest_to_go = own.order_by(table.c.id.desc()).offset(keep).limit(1).scalar_subquery()
    oldest = own.where(table.c.id <= newest_to_go).order_by(table.c.id).limit(limit)
    return (await connection.execute(table.delete().where(table.c.id.in_(oldest)))).rowcount
