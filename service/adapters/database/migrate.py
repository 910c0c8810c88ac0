"""The schema's revisions: where a database stands, and bringing it up.

Alembic keeps its context in a module global, so one lock is around every run; on Postgres a lock of the database's is
around it too, so that two services that start together do not both upgrade.
"""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from service.adapters.database.session import async_url
from service.domain.errors import DatabaseOutdated, DatabaseUnavailable, SetupError

_ALEMBIC = threading.Lock()
_ADVISORY_LOCK = 0x656C6474


def sync_url(url: str) -> sa.URL:
    """The same database through a driver that blocks: migrations run in a thread of their own."""
    parsed = async_url(url)
    return parsed.set(drivername="sqlite") if parsed.get_backend_name() == "sqlite" else parsed


def config() -> Config:
    """The folder `migrations`, wherever it is installed. Raises SetupError where it is not."""
    found = importlib.util.find_spec("migrations")
    if found is None or not found.submodule_search_locations:
        raise SetupError("the package `migrations` is not installed; install the project whole")
    settings = Config()
    settings.set_main_option(
        "script_location", str(Path(next(iter(found.submodule_search_locations)))).replace("%", "%%")
    )
    return settings


def head() -> str:
    revision = ScriptDirectory.from_config(config()).get_current_head()
    assert revision is not None, "the folder of migrations holds at least one"
    return revision


@contextmanager
def _connected(url: str) -> Iterator[sa.Connection]:
    """Raises DatabaseUnavailable where the database is away, also in the middle."""
    engine = sa.create_engine(sync_url(url), poolclass=sa.NullPool)
    try:
        with engine.connect() as connection:
            yield connection
    except (sa.exc.OperationalError, sa.exc.InterfaceError) as error:
        raise DatabaseUnavailable(type(error).__name__) from error
    finally:
        engine.dispose()


@contextmanager
def migrating(url: str) -> Iterator[tuple[Config, sa.Connection]]:
    """Alone with the database; the configuration carries the connection to `migrations/env.py`.

    Raises DatabaseUnavailable.
    """
    with _ALEMBIC, _connected(url) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text(f"SELECT pg_advisory_lock({_ADVISORY_LOCK})"))
            connection.commit()
        settings = config()
        settings.attributes["connection"] = connection
        yield settings, connection


def current(url: str) -> str | None:
    """The database's revision; None where it has none. Raises DatabaseUnavailable."""
    with _connected(url) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(url: str, revision: str = "head") -> None:
    """Raises DatabaseUnavailable, SetupError."""
    with migrating(url) as (settings, _):
        command.upgrade(settings, revision)


def downgrade(url: str, revision: str) -> None:
    with migrating(url) as (settings, _):
        command.downgrade(settings, revision)


async def ensure_schema(url: str, *, may_upgrade: bool) -> None:
    """The embedded database is brought up; a server's is only looked at.

    Raises DatabaseOutdated, DatabaseUnavailable.
    """
    wanted = head()
    if may_upgrade:
        await asyncio.to_thread(upgrade, url)
    found = await asyncio.to_thread(current, url)
    if found != wanted:
        raise DatabaseOutdated(found=found or "none", wanted=wanted)
