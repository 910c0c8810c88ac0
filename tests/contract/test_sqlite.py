"""What only a file can get wrong: two services on it, a reader beside a writer, a transaction that dies."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from service.adapters.database import rollups, samples, session, thinning
from service.adapters.database.counting import key_of, range_of
from service.adapters.database.migrate import upgrade
from service.adapters.database.session import SqlDatabase
from service.adapters.database.sqlite_lock import FileLock
from service.domain.errors import HomeInUse, JobNotFound
from tests.contract.values import job, number, sample


def test_a_second_service_on_one_file_is_refused_with_a_sentence(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "elastane.db"), FileLock(tmp_path / "elastane.db")
    first.take()
    first.take()
    with pytest.raises(HomeInUse, match=r"is in use by another service \(pid \d+\); stop that one, or give this one"):
        second.take()
    first.release()
    second.take()
    second.release()


@pytest.fixture
async def file(tmp_path: Path) -> SqlDatabase:
    url = f"sqlite:///{tmp_path}/elastane.db"
    await asyncio.to_thread(upgrade, url)
    return SqlDatabase(url)


async def test_readers_see_the_last_commit_while_a_writer_is_at_work(file: SqlDatabase) -> None:
    async with file.write() as writer:
        await writer.jobs.add(job())
        async with file.read() as reader:
            with pytest.raises(JobNotFound):
                await reader.jobs.get(number(1))
        await writer.commit()
    async with file.read() as reader:
        assert (await reader.jobs.get(number(1))).id == number(1)
    await file.close()


async def test_a_writer_that_fails_or_is_cancelled_lets_the_next_one_in(file: SqlDatabase) -> None:
    async def fail() -> None:
        async with file.write() as work:
            await work.jobs.add(job())
            raise RuntimeError

    async def hang() -> None:
        async with file.write():
            await asyncio.Event().wait()

    with pytest.raises(RuntimeError):
        await fail()
    hanging = asyncio.create_task(hang())
    waiting = asyncio.create_task(hang())
    await asyncio.wait({hanging, waiting}, timeout=0.2)
    for task in (waiting, hanging):
        task.cancel()
    await asyncio.wait({hanging, waiting})
    async with asyncio.timeout(5), file.write() as work:
        await work.jobs.add(job())
        await work.commit()
    await file.close()


async def test_a_unit_that_is_cancelled_anywhere_gives_the_file_back(tmp_path: Path, monkeypatch: Any) -> None:
    """A driver that runs in a thread, given up in the middle of a statement, would keep the file locked."""
    monkeypatch.setattr(session, "BUSY_TIMEOUT_MS", 500)
    url = f"sqlite:///{tmp_path}/elastane.db"
    await asyncio.to_thread(upgrade, url)
    database, chance = SqlDatabase(url), random.Random(7)

    async def write(name: str) -> None:
        async with database.write() as work:
            await work.leases.take(name, holder="a", ttl_s=10)
            await work.commit()

    async def write_on_and_on() -> None:
        while True:
            await write("one")

    for _ in range(80):
        writing = asyncio.create_task(write_on_and_on())
        await asyncio.sleep(chance.random() * 0.01)
        writing.cancel()
        await asyncio.wait({writing})
        await write("other")
    await database.close()


async def test_steps_of_a_series_are_found_by_its_key(file: SqlDatabase) -> None:
    """Else each short transaction, and each look at a part of a chart, would go through the whole series."""
    async with file.write() as work:
        await work.jobs.add(job())
        await work.samples.add(number(1), [sample(step, 1.0, generation=step % 3) for step in range(300)])
        await work.commit()
    key = {**key_of(number(1), "loss", -1), "first": 100, "last": 200, "width": 10, "from_step": 100}
    async with file._reader.connect() as connection:
        rows = await range_of(connection, number(1), "loss", -1, begin=100, end=200)
        for query in (
            thinning._THIN.format(range=rows, bucket="step / 10"),
            rollups._ROLL.format(range=rows, steps=1000),
            rollups._SERIES.format(steps=1000, first=0, width=1000, ends="(-1, 1, 100)"),
            samples._SERIES.format(chosen=samples._ALL, parts="(-1, 1)", radix=1024),
            samples._SERIES.format(chosen=samples._NEWEST, parts="(-1, 1), (-1, 2)", radix=1024),
        ):
            told = await connection.execute(sa.text(f"EXPLAIN QUERY PLAN {query}"), key)
            looks = [line for *_, line in told if re.match(r"(SEARCH|SCAN) (s|samples) ", line)]
            assert looks
            assert all("rank=? AND generation=? AND step" in line for line in looks), looks
    await file.close()
