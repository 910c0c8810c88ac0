"""Engines. SQLite: WAL, one writer at a time, readers beside it. Postgres: psycopg 3."""

from __future__ import annotations

import asyncio
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from service.adapters.database.jobs import Known
from service.adapters.database.unit_of_work import SqlUnit
from service.domain.errors import DatabaseUnavailable
from service.ports import UnitOfWork

BUSY_TIMEOUT_MS = 30_000
READERS = 5
POOL = 20
POOL_TIMEOUT_S = 5.0


def async_url(url: str) -> URL:
    parsed = make_url(url)
    drivers = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
    return parsed.set(drivername=drivers.get(parsed.drivername, parsed.drivername))


class SqlDatabase:
    """The port `Database`. `write` units of one process queue up for SQLite here rather than spin on its lock."""

    def __init__(self, url: str) -> None:
        self.url = url
        parsed = async_url(url)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        self._writer = _sqlite(parsed, "IMMEDIATE", 1) if self.is_sqlite else _postgres(parsed)
        self._reader = _sqlite(parsed, "DEFERRED", READERS) if self.is_sqlite else self._writer
        self._turn = asyncio.Lock()
        self._known = Known()

    def write(self) -> UnitOfWork:
        return SqlUnit(self._writer, writes=True, turn=self._turn if self.is_sqlite else None, known=self._known)

    def read(self) -> UnitOfWork:
        return SqlUnit(self._reader, writes=False, turn=None, known=self._known)

    async def ping(self) -> None:
        """Raises DatabaseUnavailable."""
        try:
            async with asyncio.timeout(5), self._reader.connect() as connection:
                await connection.execute(sa.text("SELECT 1"))
        except (sa.exc.SQLAlchemyError, TimeoutError, OSError) as error:
            raise DatabaseUnavailable(type(error).__name__) from error

    async def close(self) -> None:
        await self._writer.dispose()
        await self._reader.dispose()


def _postgres(url: URL) -> AsyncEngine:
    return create_async_engine(url, pool_size=POOL, max_overflow=0, pool_timeout=POOL_TIMEOUT_S, pool_pre_ping=True)


def _sqlite(url: URL, begin: str, connections: int) -> AsyncEngine:
    engine = create_async_engine(url, pool_size=connections, max_overflow=0, pool_timeout=30)

    @sa.event.listens_for(engine.sync_engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        # The driver must not begin by itself: a deferred transaction that writes late fails instead of waiting.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            "journal_mode = WAL",
            f"busy_timeout = {BUSY_TIMEOUT_MS}",
            "foreign_keys = ON",
            "synchronous = FULL",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @sa.event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"BEGIN {begin}")

    return engine
