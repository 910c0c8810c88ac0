"""The outbox. Ids are visible in order: who commits later has larger ones.

SQLite has one writer anyway. On Postgres two transactions could take ids and commit in the other order, and a reader
that had passed the larger id would never see the smaller; so ids are taken at the end, one transaction at a time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.database import tables
from service.domain.notice import Notice, NoticeKind

_T = tables.notices
_ADVISORY_LOCK = 0x656C6173  # "elas"


class SqlNotices:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._waiting: list[dict[str, Any]] = []

    async def put(self, kind: NoticeKind, job_id: str, data: Mapping[str, Any]) -> None:
        self._waiting.append({"kind": kind, "job_id": job_id, "data": json.dumps(data, default=str)})

    async def flush(self) -> None:
        """Right before the commit."""
        if not self._waiting:
            return
        if self._connection.dialect.name == "postgresql":
            await self._connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
        await self._connection.execute(_T.insert(), self._waiting)
        self._waiting = []

    async def after(self, after: int, *, job_id: str | None, limit: int) -> tuple[Notice, ...]:
        query = sa.select(_T).where(_T.c.id > after).order_by(_T.c.id).limit(limit)
        if job_id is not None:
            query = query.where(_T.c.job_id == job_id)
        found = (await self._connection.execute(query)).mappings()
        return tuple(
            Notice(id=row["id"], kind=row["kind"], job_id=row["job_id"], data=json.loads(row["data"])) for row in found
        )

    async def span(self) -> tuple[int, int]:
        first, last = (await self._connection.execute(sa.select(sa.func.min(_T.c.id), sa.func.max(_T.c.id)))).one()
        return (0, 0) if last is None else (first - 1, last)

    async def prune(self, *, keep: int, limit: int) -> int:
        """The newest is always kept: its id says where the count stands."""
        newest = sa.select(sa.func.max(_T.c.id)).scalar_subquery()
        oldest = sa.select(_T.c.id).where(_T.c.id <= newest - max(1, keep)).order_by(_T.c.id).limit(limit)
        return (await self._connection.execute(_T.delete().where(_T.c.id.in_(oldest)))).rowcount
