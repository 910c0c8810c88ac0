"""Two services, real processes, on one Postgres: one leads, and when it is killed the other does."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

TAKEOVER_S = 15.0


@pytest.fixture
def services(ready_postgres_url: str, tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Their cluster does not answer: leading needs none."""
    environment = {
        **os.environ,
        "ELASTANE_DATABASE_URL": ready_postgres_url,
        "ELASTANE_RAY_ADDRESS": "http://127.0.0.1:1",
    }
    started: list[subprocess.Popen[bytes]] = []
    with (tmp_path / "log").open("wb") as log:
        for name in ("one", "other"):
            command = [sys.executable, "-m", "api.cli.main", "serve", "--port", "0", "--home", str(tmp_path / name)]
            started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
    # Both must be there: a service that still starts takes nothing over.
    until = time.monotonic() + 90
    while (tmp_path / "log").read_text().count("Elastane listens on") < 2:
        assert time.monotonic() < until, (tmp_path / "log").read_text()
        time.sleep(0.1)
    yield started
    for each in started:
        each.kill()
        each.wait()


def leader(url: str) -> int | None:
    """The pid of who holds the lease now."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT holder FROM leases WHERE expires_at > extract(epoch FROM now())").fetchone()
    return int(row[0].split(":")[1]) if row and row[0] else None


async def until_led(url: str, *, by: set[int], within_s: float) -> float:
    began = time.monotonic()
    while await asyncio.to_thread(leader, url) not in by:
        assert time.monotonic() - began < within_s, "nobody of them leads"
        await asyncio.sleep(0.1)
    return time.monotonic() - began


async def test_when_the_leader_is_killed_the_other_leads_within_15_s(
    services: list[subprocess.Popen[bytes]], ready_postgres_url: str
) -> None:
    by_pid = {each.pid: each for each in services}
    await until_led(ready_postgres_url, by=set(by_pid), within_s=60)
    first = leader(ready_postgres_url)
    assert first is not None
    by_pid.pop(first).kill()
    took_s = await until_led(ready_postgres_url, by=set(by_pid), within_s=TAKEOVER_S)
    assert took_s < TAKEOVER_S
    (left,) = by_pid.values()
    assert left.poll() is None
