"""Rows of attempts and their tokens."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.database import tables
from service.domain.attempt import Attempt, AttemptState
from service.domain.errors import AttemptNotFound
from service.domain.text import askable, storable
from service.domain.wire import WorkerReport

_T = tables.attempts
_TOKENS = tables.attempt_tokens


class SqlAttempts:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, attempt: Attempt) -> None:
        await self._connection.execute(_T.insert().values(**_row(attempt)))

    async def get(self, attempt_id: str) -> Attempt:
        found = None
        if askable(attempt_id):
            query = sa.select(_T).where(_T.c.id == attempt_id)
            found = (await self._connection.execute(query)).mappings().one_or_none()
        if found is None:
            raise AttemptNotFound(attempt_id)
        return _attempt(found)

    async def save(self, attempt: Attempt) -> None:
        await self._connection.execute(_T.update().where(_T.c.id == attempt.id).values(**_row(attempt)))

    async def open(self) -> tuple[Attempt, ...]:
        live = sa.or_(_T.c.released.is_(False), _T.c.state != str(AttemptState.ENDED))
        found = await self._connection.execute(sa.select(_T).where(live).order_by(_T.c.id))
        return tuple(_attempt(row) for row in found.mappings())

    async def add_token(self, attempt_id: str, token_hash: str) -> None:
        await self._connection.execute(_TOKENS.insert().values(attempt_id=attempt_id, token_hash=token_hash))

    async def forget_tokens(self, job_id: str) -> int:
        gone = sa.select(_T.c.id).where(_T.c.job_id == job_id, _T.c.released.is_(True))
        return (await self._connection.execute(_TOKENS.delete().where(_TOKENS.c.attempt_id.in_(gone)))).rowcount

    async def knows_token(self, attempt_id: str, token_hash: str) -> bool:
        if not askable(attempt_id):
            return False
        query = sa.select(_TOKENS.c.attempt_id).where(
            _TOKENS.c.attempt_id == attempt_id, _TOKENS.c.token_hash == token_hash
        )
        return (await self._connection.execute(query)).first() is not None


_SAME = ("id", "job_id", "number", "created_at", "launched_at", "seen_at", "ended_at", "result", "phase")
_SAME_TOO = ("generation_before", "acknowledged", "released")


def _row(attempt: Attempt) -> dict[str, Any]:
    return {
        **{name: getattr(attempt, name) for name in (*_SAME, *_SAME_TOO)},
        "state": str(attempt.state),
        "reason": storable(attempt.reason),
        "workers": json.dumps([worker.model_dump() for worker in attempt.workers]),
    }


@lru_cache(maxsize=2048)
def _workers(document: str) -> tuple[WorkerReport, ...]:
    """Read with each look of the reconciler, and rarely another than before: each is parsed once."""
    return tuple(WorkerReport.model_validate(worker) for worker in json.loads(document))


def _attempt(row: sa.RowMapping) -> Attempt:
    return Attempt(
        **{name: row[name] for name in (*_SAME, *_SAME_TOO)},
        state=AttemptState(row["state"]),
        reason=row["reason"],
        workers=_workers(row["workers"]),
    )
