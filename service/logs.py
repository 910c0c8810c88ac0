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
        if not 1 <= limit <= LINES_LIMIT:
            fix = f"use 1 to {LINES_LIMIT}"
            raise RequestRefused([Problem(field="limit", value=limit, problem="out of range", fix=fix)])
        async with self.database.read() as work:
            await work.jobs.get(job_id)
            return await work.logs.after(job_id, rank=rank, after=after, limit=limit)
