"""Lines that workers wrote, in order of arrival."""

from __future__ import annotations

from dataclasses import dataclass

from service.domain.errors import Problem, RequestRefused
from service.domain.log import LogRecord
from service.ports import Database

LINES_LIMIT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    database: Database

    async def lines(
        self, job_id: str, *, rank: int | None = None, after: int = 0, limit: int = 500
    ) -> tuple[LogRecord, ...]:
        """From the line after number `after`. Raises JobNotFound, RequestRefused."""
        _check("limit", limit, 1, LINES_LIMIT)
        _check("after", after, 0, 2**63 - 1)
        _check("rank", rank or 0, 0, 2**31 - 1)
        async with self.database.read() as work:
            await work.jobs.get(job_id)
            return await work.logs.after(job_id, rank=rank, after=after, limit=limit)


def _check(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise RequestRefused([Problem(field=field, value=value, problem="out of range", fix=f"use {low} to {high}")])
