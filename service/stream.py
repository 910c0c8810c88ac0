"""Streams: every client reads the outbox by its own cursor, so that a slow one holds nobody up and nothing is lost.

One task follows the outbox and keeps its newest part in memory; a client that is near the end reads from there, one
that is behind pages through the database, one that is behind what is kept gets a `resync`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from service.domain.notice import Notice
from service.ledger import NOTICES
from service.ports import Bus, Database

log = logging.getLogger(__name__)

RECENT = 2000  # notices kept in memory
BATCH = 200  # notices that one client holds at most
POLL_S = 1.0  # a service on the same Postgres writes without a wake-up here


@dataclass(slots=True, kw_only=True)
class _Tail:
    """The newest notices in order; `floor` is the id before the first of them, `head` that of the last."""

    recent: deque[Notice] = field(default_factory=deque)
    floor: int = 0
    head: int = 0

    def grow(self, notices: tuple[Notice, ...]) -> None:
        for notice in notices:
            if notice.id > self.head:
                self.recent.append(notice)
                self.head = notice.id
        while len(self.recent) > RECENT:
            self.floor = self.recent.popleft().id

    def after(self, cursor: int, job_id: str | None) -> tuple[tuple[Notice, ...], int]:
        """(notices that the client wants, the id up to which it has now seen everything)."""
        found: list[Notice] = []
        for notice in self.recent:
            if notice.id > cursor and (job_id is None or notice.job_id == job_id):
                found.append(notice)
                if len(found) == BATCH:
                    return tuple(found), notice.id
        return tuple(found), max(cursor, self.head)


@dataclass(slots=True, kw_only=True)
class Stream:
    database: Database
    bus: Bus
    _tail: _Tail = field(default_factory=_Tail)
    _grown: asyncio.Condition = field(default_factory=asyncio.Condition)
    _task: asyncio.Task[None] | None = None
    _closed: bool = False
    _complaint: str = ""

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done()

    async def start(self) -> None:
        async with self.database.read() as work:
            _, newest = await work.notices.span()
        self._tail = _Tail(floor=newest, head=newest)
        self._closed = False
        self._task = asyncio.create_task(self._follow(), name="stream")

    async def stop(self) -> None:
        """Ends every open subscription."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        async with self._grown:
            self._grown.notify_all()

    async def _follow(self) -> None:
        """Goes on whatever happens: a turn that fails is told, once while it fails alike, and the next one reads."""
        while True:
            try:
                await self._read_new()
                self._complaint = ""
            except Exception as error:
                if self._complaint != (complaint := repr(error)):
                    self._complaint = complaint
                    log.warning("stream: %s", complaint, exc_info=error)
            await self.bus.wait(NOTICES, timeout_s=POLL_S)

    async def _read_new(self) -> None:
        while True:
            async with self.database.read() as work:
                new = await work.notices.after(self._tail.head, job_id=None, limit=BATCH)
            if not new:
                return
            async with self._grown:
                self._tail.grow(new)
                self._grown.notify_all()

    def newest(self) -> int:
        """The id of the newest notice: a client that goes on after it misses nothing from now on."""
        return self._tail.head

    async def subscribe(self, job_id: str | None = None, after: int | None = None) -> AsyncIterator[Notice]:
        """What happens after notice `after` (None: from now), in order, each once, until the stream stops.

        Raises JobNotFound before the first notice.
        """
        if job_id is not None:
            async with self.database.read() as work:
                await work.jobs.get(job_id)
        cursor = self._tail.head if after is None else after
        if cursor > self._tail.head:
            await self._read_new()
        if cursor > self._tail.head:
            # A cursor of another database, or of the future: everything the client shows is of unknown age.
            cursor = self._tail.head
            yield _resync(cursor, job_id)
        while not self._closed:
            notices, cursor = await self._next(cursor, job_id)
            for notice in notices:
                yield notice
            if not notices:
                await self._wait(lambda seen=cursor: self._tail.head > seen)  # type: ignore[misc]

    async def _next(self, cursor: int, job_id: str | None) -> tuple[tuple[Notice, ...], int]:
        if cursor >= self._tail.floor:
            return self._tail.after(cursor, job_id)
        head = self._tail.head
        async with self.database.read() as work:
            floor, _ = await work.notices.span()
            if cursor < floor:
                return (_resync(head, job_id),), head
            notices = await work.notices.after(cursor, job_id=job_id, limit=BATCH)
        if len(notices) == BATCH:
            return notices, notices[-1].id
        return notices, max(head, notices[-1].id if notices else 0)

    async def _wait(self, ready: Callable[[], bool]) -> None:
        async with self._grown:
            await self._grown.wait_for(lambda: self._closed or ready())


def _resync(cursor: int, job_id: str | None) -> Notice:
    return Notice(id=cursor, kind="resync", job_id=job_id, data={})
