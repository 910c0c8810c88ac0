"""The schema goes up, down and up again, equals the tables, and keeps what is in it."""

from __future__ import annotations

import asyncio
import threading

import pytest
import sqlalchemy as sa
from alembic import command

from service.adapters.database import migrate, tables
from service.adapters.database.session import SqlDatabase
from service.domain.errors import DatabaseOutdated, DatabaseUnavailable
from service.domain.event import Event
from tests.contract.values import NOW, attempt, job, number, sample


def table_names(url: str) -> set[str]:
    engine = sa.create_engine(migrate.sync_url(url))
    try:
        return set(sa.inspect(engine).get_table_names()) - {"alembic_version"}
    finally:
        engine.dispose()


def test_up_down_and_up_again(url: str) -> None:
    migrate.upgrade(url)
    assert table_names(url) == set(tables.metadata.tables)
    migrate.downgrade(url, "base")
    assert table_names(url) == set()
    migrate.upgrade(url)
    assert table_names(url) == set(tables.metadata.tables)
    assert migrate.current(url) == migrate.head()


def test_the_revisions_make_exactly_the_tables(url: str) -> None:
    migrate.upgrade(url)
    with migrate.migrating(url) as (settings, _):
        command.check(settings)


def test_upgrading_what_is_up_to_date_keeps_every_row(url: str) -> None:
    migrate.upgrade(url)

    async def fill() -> None:
        database = SqlDatabase(url)
        async with database.write() as work:
            await work.jobs.add(job())
            await work.attempts.add(attempt())
            await work.events.add(Event(job_id=number(1), kind="submitted", at=NOW))
            await work.samples.add(number(1), [sample(1, 2.0)])
            await work.commit()
        await database.close()

    async def read() -> tuple[object, ...]:
        database = SqlDatabase(url)
        async with database.read() as work:
            found = (
                await work.jobs.get(number(1)),
                await work.attempts.get(number(901)),
                await work.events.after(number(1), 0, 10),
                await work.samples.series(number(1), names=[], points=10, from_step=0),
            )
        await database.close()
        return found

    asyncio.run(fill())
    before = asyncio.run(read())
    migrate.upgrade(url)
    assert asyncio.run(read()) == before


def test_two_that_upgrade_at_once_both_find_it_done(url: str) -> None:
    threads = [threading.Thread(target=migrate.upgrade, args=(url,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert migrate.current(url) == migrate.head()


def test_a_server_s_database_is_looked_at_and_not_changed(url: str) -> None:
    with pytest.raises(DatabaseOutdated, match="run `elastane db upgrade`"):
        asyncio.run(migrate.ensure_schema(url, may_upgrade=False))
    assert table_names(url) == set()
    asyncio.run(migrate.ensure_schema(url, may_upgrade=True))
    asyncio.run(migrate.ensure_schema(url, may_upgrade=False))


def test_a_database_that_is_away_is_told_in_a_sentence() -> None:
    for ask in (migrate.upgrade, migrate.current):
        with pytest.raises(DatabaseUnavailable):
            ask("postgresql://nobody@127.0.0.1:1/none")
