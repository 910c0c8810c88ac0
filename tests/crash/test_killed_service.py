"""kill -9 of the service at each commit that it makes, while jobs are submitted, scaled, moved and cancelled.

By default a few points and a few jobs; all of it:
ELASTANE_KILL_JOBS=200 ELASTANE_KILL_POINTS=all python -m pytest tests/crash/test_killed_service.py
"""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from api.client import ENDED, ElastaneClient, Refused, RetryPolicy, Unreachable
from service.adapters.processes import with_arguments

# Method that commits -> at the how manieth time; what every run does often enough.
POINTS = {
    "Jobs._accept": 5,
    "Jobs.scale": 2,
    "Jobs.prioritise": 2,
    "Jobs._want": 2,
    "Jobs.delete": 1,
    "Attempts.brief": 3,
    "Attempts.heartbeat": 7,
    "Reconciler._lead": 4,
    "Reconciler._give": 3,
    "Reconciler._tell": 2,
    "Reconciler._attempt": 3,
    "Reconciler._launch": 3,
    "Reconciler._launched": 3,
    "Reconciler._release": 3,
    "Reconciler._lost": 1,
    "Reconciler._remove": 1,
}
ALL = [f"{name}:{side}:{count}" for name, count in POINTS.items() for side in ("before", "after")]
FEW = ["Jobs._accept:after:5", "Reconciler._launch:after:3"]
CHOSEN = ALL if os.environ.get("ELASTANE_KILL_POINTS") == "all" else FEW
JOBS = int(os.environ.get("ELASTANE_KILL_JOBS", "16"))
TINY = {"model": "gpt-tiny", "training": {"steps": 1, "batch_size": 4, "micro_batch_size": 2, "seq_len": 32}}

Json = dict[str, Any]


@dataclass
class Service:
    """Started with a point to die at; started anew, without one, as soon as it is gone."""

    home: Path
    port: int
    deaths: list[int] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None
    _ending: bool = False

    def start(self, point: str) -> None:
        command = [sys.executable, "-m", "tests.crash.doomed_service", str(self.home), str(self.port), point]
        with (self.home / "service.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def watch(self) -> None:
        while not self._ending:
            assert self._process is not None
            with suppress(subprocess.TimeoutExpired):
                self.deaths.append(self._process.wait(0.1))
                if not self._ending:
                    self.start("-")

    def stop(self) -> None:
        self._ending = True
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    made = Service(tmp_path, port)
    yield made
    made._ending = True
    if made._process is not None:
        made._process.kill()
        made._process.wait()
    for pid in with_arguments(["workers.controller", f"http://127.0.0.1:{port}"]):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", CHOSEN)
def test_each_accepted_job_ends_once_and_nothing_is_left(service: Service, point: str) -> None:
    service.start(point)
    watching = threading.Thread(target=service.watch, daemon=True)
    watching.start()
    with ThreadPoolExecutor(4) as users:
        accepted = dict(users.map(lambda number: user(service.port, number), range(JOBS)))
    with client(service.port) as reader:
        ended = {job_id: until_ended(reader, job_id) for job_id in accepted}
        until_idle(service.port)
        told = {job_id: kinds(reader, job_id) for job_id in accepted}
        listed = everything(reader)
    service.stop()
    watching.join()
    assert -signal.SIGKILL in service.deaths, f"the service never came to {point}"
    assert len(accepted) == JOBS, "two submissions became one job"
    assert listed == {job_id for job_id, state in ended.items() if state != "deleted"}
    for job_id, wish in accepted.items():
        if ended[job_id] != "deleted":
            assert ended[job_id] in {"cancel": ("cancelled", "succeeded")}.get(wish, ("succeeded",)), wish
            assert [kind for kind in told[job_id] if kind in ENDED] == [ended[job_id]]
            assert told[job_id].count("submitted") == 1
    assert leftovers(service.home) == (0, "")


def client(port: int) -> ElastaneClient:
    """Patient: the service is away for a second or two."""
    patience = RetryPolicy(attempts=40, first_wait_s=0.2, longest_wait_s=0.5)
    return ElastaneClient(f"http://127.0.0.1:{port}", retry=patience)


def user(port: int, number: int) -> tuple[str, str]:
    """Submits one job and does one thing to it; whatever is lost on the way is said again."""
    wish = ("run", "cancel", "scale", "pause", "priority", "run", "delete", "run")[number % 8]
    with client(port) as me:
        job_id = me.submit({**TINY, "workers": {"min": 1, "max": 2}}, idempotency_key=f"job-{number}")["id"]
        if wish == "cancel":
            insist(lambda: me.cancel(job_id))
        elif wish == "scale":
            insist(lambda: me.scale(job_id, 1))
        elif wish == "priority":
            insist(lambda: me.prioritise(job_id, number % 100))
        elif wish == "pause":
            insist(lambda: me.pause(job_id))
            insist(lambda: me.resume(job_id))
        elif wish == "delete":
            until_ended(me, job_id)
            insist(lambda: me.delete(job_id))
    return job_id, wish


def insist(act: Any) -> None:
    """Idempotent calls, repeated until there is an answer; that it comes too late for this job is one."""
    for _ in range(100):
        try:
            act()
        except Unreachable:
            time.sleep(0.1)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise
            return
        else:
            return
    raise AssertionError("no answer")


def until_ended(reader: ElastaneClient, job_id: str) -> str:
    end = time.monotonic() + 180
    while time.monotonic() < end:
        try:
            job = reader.job(job_id)
        except Refused as refused:
            if refused.status != 404:
                raise
            return "deleted"
        if job["state"] in ENDED:
            return str(job["state"])
        time.sleep(0.2)
    raise AssertionError(f"job {job_id} has not ended: {job}")


def kinds(reader: ElastaneClient, job_id: str) -> list[str]:
    try:
        return [event["kind"] for event in reader.events(job_id, limit=1000)["items"]]
    except Refused:
        return []


def everything(reader: ElastaneClient) -> set[str]:
    found, cursor = set[str](), None
    while True:
        page = reader.jobs(limit=200, cursor=cursor)
        found |= {job["id"] for job in page["items"]}
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def until_idle(port: int) -> None:
    """No controller is left, and the service has seen that none is."""
    with client(port) as reader:
        end = time.monotonic() + 60
        while with_arguments(["workers.controller", f"http://127.0.0.1:{port}"]) or reader.cluster()["used"]:
            assert time.monotonic() < end, "a process or its slot is left"
            time.sleep(0.1)


def leftovers(home: Path) -> tuple[int, str]:
    """Attempts that hold something, and who holds the lease, after an orderly stop."""
    with closing(sqlite3.connect(home / "elastane.db")) as rows:
        (open_,) = rows.execute("SELECT count(*) FROM attempts WHERE NOT released OR state <> 'ended'").fetchone()
        (holder,) = rows.execute("SELECT holder FROM leases WHERE name = 'reconciler'").fetchone()
    return int(open_), str(holder)
