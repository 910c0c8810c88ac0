"""One transaction and the rows it reaches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import Any, Self, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.adapters.database.attempts import SqlAttempts
from service.adapters.database.checkpoints import SqlCheckpoints
from service.adapters.database.jobs import Known, SqlJobs, SqlSubmissions
from service.adapters.database.keys import SqlKeys
from service.adapters.database.leases import SqlLeases
from service.adapters.database.notices import SqlNotices
from service.adapters.database.samples import SqlSamples
from service.adapters.database.timeline import SqlEvents, SqlLogs
from service.adapters.database.webhooks import SqlWebhooks
from service.domain.errors import DatabaseUnavailable
from service.ports import (
    AttemptRows,
    CheckpointRows,
    EventRows,
    JobRows,
    KeyRows,
    LeaseRows,
    LogRows,
    NoticeRows,
    SampleRows,
    SubmissionRows,
    WebhookRows,
)

T = TypeVar("T")
# The driver's ways to say that the database is away, full or locked; anything else is a fault of ours.
_AWAY = (exc.OperationalError, exc.InterfaceError, exc.TimeoutError, exc.DisconnectionError, OSError)


async def _uncut(operation: Awaitable[T]) -> T:
    """The outcome; a caller that is cancelled meanwhile waits for the end of it first."""
    task = asyncio.ensure_future(operation)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # its failure is nobody's any more
        raise


class UncutConnection(AsyncConnection):
    """On which a statement that was begun ends: SQLite runs it in a thread, and a connection that is given up in the
    middle of one keeps the lock of the file."""

    async def execute(self, *arguments: Any, **options: Any) -> sa.CursorResult[Any]:
        return await _uncut(super().execute(*arguments, **options))

    async def commit(self) -> None:
        await _uncut(super().commit())


class SqlUnit:
    """The port `UnitOfWork`; a database that is away becomes DatabaseUnavailable wherever it shows."""

    jobs: JobRows
    submissions: SubmissionRows
    attempts: AttemptRows
    events: EventRows
    samples: SampleRows
    checkpoints: CheckpointRows
    logs: LogRows
    keys: KeyRows
    leases: LeaseRows
    notices: NoticeRows
    webhooks: WebhookRows

    def __init__(self, engine: AsyncEngine, *, writes: bool, turn: asyncio.Lock | None, known: Known) -> None:
        self._engine = engine
        self._known = known
        self._writes = writes
        self._turn = turn
        self._sqlite = engine.dialect.name == "sqlite"
        self._connection: AsyncConnection

    async def __aenter__(self) -> Self:
        if self._turn is not None:
            await self._turn.acquire()
        try:
            await (_uncut(self._open()) if self._sqlite else self._open())
        except BaseException as error:
            await self._leave()
            if isinstance(error, _AWAY):
                raise DatabaseUnavailable(type(error).__name__) from error
            raise
        self._bind(self._connection)
        return self

    async def _open(self) -> None:
        made = UncutConnection(self._engine) if self._sqlite else AsyncConnection(self._engine)
        self._connection = await made.start()
        await self._connection.begin()

    def _bind(self, connection: AsyncConnection) -> None:
        self.jobs = SqlJobs(connection, locks=self._writes, known=self._known)
        self.submissions = SqlSubmissions(connection)
        self.attempts = SqlAttempts(connection)
        self.events = SqlEvents(connection)
        self.samples = SqlSamples(connection)
        self.checkpoints = SqlCheckpoints(connection)
        self.logs = SqlLogs(connection)
        self.keys = SqlKeys(connection)
        self.leases = SqlLeases(connection)
        self.webhooks = SqlWebhooks(connection)
        self.notices = self._outbox = SqlNotices(connection)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave()
        if isinstance(error, _AWAY):
            raise DatabaseUnavailable(type(error).__name__) from error

    async def _leave(self) -> None:
        """Rolls back what was not committed; a connection that is gone has nothing to roll back."""
        try:
            connection = getattr(self, "_connection", None)
            if connection is not None:
                await asyncio.shield(connection.close())
        except _AWAY:
            return
        finally:
            if self._turn is not None and self._turn.locked():
                self._turn.release()

    async def commit(self) -> None:
        """The notices leave last: their order is the order of commits."""
        await self._outbox.flush()
        await self._connection.commit()
