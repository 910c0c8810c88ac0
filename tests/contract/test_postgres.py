"""What only a database with several writers at once can get wrong."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from service.adapters.database import session
from service.adapters.database.notices import SqlNotices
from service.adapters.database.session import SqlDatabase
from service.domain.errors import DatabaseUnavailable
from tests.contract.values import job, number


async def test_a_notice_cannot_overtake_one_whose_transaction_is_slow_to_commit(ready_postgres_url: str) -> None:
    database = SqlDatabase(ready_postgres_url)

    async def write_fast() -> None:
        async with database.write() as work:
            await work.notices.put("event", number(2), {"name": "fast"})
            await work.commit()

    async with database.write() as slow:
        assert isinstance(slow.notices, SqlNotices)
        await slow.notices.put("event", number(1), {"name": "slow"})
        await slow.notices.flush()
        fast = asyncio.create_task(write_fast())
        done, _ = await asyncio.wait({fast}, timeout=0.5)
        assert not done
        await slow.commit()
    await fast
    async with database.read() as work:
        found = await work.notices.after(0, job_id=None, limit=10)
    assert [notice.data["name"] for notice in found] == ["slow", "fast"]
    await database.close()


async def test_a_connection_that_the_server_cuts_is_unavailable_once_and_then_back(ready_postgres_url: str) -> None:
    database = SqlDatabase(ready_postgres_url)

    async def cut_in_the_middle() -> None:
        async with database.write() as work:
            await work.jobs.add(job())
            with psycopg.connect(ready_postgres_url, autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            await work.commit()

    with pytest.raises(DatabaseUnavailable):
        await cut_in_the_middle()
    async with database.read() as work:
        assert await work.jobs.counts() == {}
    await database.ping()
    await database.close()


async def test_a_pool_that_is_exhausted_is_unavailable_and_not_a_fault(
    ready_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "POOL", 1)
    monkeypatch.setattr(session, "POOL_TIMEOUT_S", 0.1)
    database = SqlDatabase(ready_postgres_url)
    async with database.read():
        with pytest.raises(DatabaseUnavailable):
            async with database.read():
                pass
    await database.ping()
    await database.close()


async def test_a_server_that_is_not_there_is_unavailable(ready_postgres_url: str) -> None:
    database = SqlDatabase("postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(DatabaseUnavailable):
        async with database.write():
            pass
    with pytest.raises(DatabaseUnavailable):
        await database.ping()
