"""The service as its users meet it, over HTTP, beside a bare insert: submissions, reading with 10,000 jobs, samples,
a series of a million points, 50 streams of which one is read at a byte a second.

`python -m benchmarks.control_plane --http`. Ours and the bare one are processes on loopback with an SQLite file each;
rounds take turns. Ratios: submissions per second ours / bare (at least 0.5), p95 of a page of ten with 10,000 jobs /
with 10 (at most 3), p95 of a notice with the slow reader / without.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa

from benchmarks import rounds
from service import retention
from service.adapters.database.session import SqlDatabase
from service.domain.attempt import Attempt, AttemptState
from service.domain.job import JobState
from service.domain.key import secret_hash

SPEC: dict[str, Any] = {"model": "gpt-tiny", "workers": 16}
AT_ONCE, EACH, ROUNDS = 8, 200, 5
PAGES, STREAMS, NOTICES = 60, 50, 40
POINTS, SPIKE, HISTORY = 1_000_000, 777_777, 10_000
Figures = dict[str, float]


@dataclass(frozen=True)
class Running:
    url: str
    database: str


@contextlib.contextmanager
def started(command: list[str], url: str, database: str) -> Iterator[Running]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(url + "/openapi.json", trust_env=False)
                break
            if time.monotonic() > until or process.poll() is not None:
                raise RuntimeError(f"{command} did not start")
            time.sleep(0.1)
        yield Running(url, database)
    finally:
        process.terminate()
        process.wait(30)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[Running]:
    """Ours, with a cluster that never answers: what is submitted waits."""
    port = free_port()
    # `env` gives the service its setting: nothing here reads or writes the environment of this process.
    serve = [sys.executable, "-m", "api.cli.main", "serve", "--port", str(port), "--home", str(folder / "home")]
    command = ["env", "ELASTANE_RAY_ADDRESS=http://127.0.0.1:9", *serve]
    with started(command, f"http://127.0.0.1:{port}", f"sqlite:///{folder}/home/elastane.db") as running:
        yield running


@contextlib.contextmanager
def both(folder: Path) -> Iterator[tuple[Running, Running]]:
    """(ours, bare)."""
    port, url = free_port(), f"sqlite:///{folder}/bare.db"
    peer = [sys.executable, "-m", "benchmarks.bare_insert", url, str(port)]
    with alone(folder) as one, started(peer, f"http://127.0.0.1:{port}", url) as other:
        yield one, other


# ---- submissions ---------------------------------------------------------------------------------------------------


def submissions(url: str, path: str) -> Figures:
    """EACH posts from each of AT_ONCE connections."""

    def user(_: int) -> list[float]:
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
            return [_timed(lambda: http.post(path, json=SPEC), 201) for _ in range(EACH // AT_ONCE)]

    began = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        taken = [each for found in pool.map(user, range(AT_ONCE)) for each in found]
    return {"per_s": len(taken) / (time.perf_counter() - began), **_percentiles(taken)}


def _timed(call: Callable[[], httpx.Response], status: int = 200) -> float:
    began = time.perf_counter()
    answer = call()
    if answer.status_code != status:
        raise RuntimeError(f"{answer.status_code}: {answer.text[:500]}")
    return time.perf_counter() - began


def _percentiles(taken: list[float]) -> Figures:
    cuts = statistics.quantiles(taken, n=20, method="inclusive")
    return {"p50_s": cuts[9], "p95_s": cuts[18]}


# ---- reading -------------------------------------------------------------------------------------------------------


def reading(ours: Running) -> dict[str, Figures]:
    with httpx.Client(base_url=ours.url, timeout=60, trust_env=False) as http:
        one = http.get("/v1/jobs", params={"limit": 1}).json()["items"][0]["id"]
        calls: dict[str, Callable[[], httpx.Response]] = {
            "list": lambda: http.get("/v1/jobs", params={"limit": 10}),
            "show": lambda: http.get(f"/v1/jobs/{one}"),
        }
        return {name: _percentiles([_timed(call) for _ in range(PAGES)]) for name, call in calls.items()}


async def fill(url: str, count: int) -> None:
    """Jobs that ended long ago, as so many rows."""
    database = SqlDatabase(url)
    async with database.read() as work:
        (job,) = (await work.jobs.page(state=None, name=None, limit=1, cursor=None)).items
    ended = replace(job, state=JobState.SUCCEEDED, ended_at=job.created_at, version=1)
    async with database.write() as work:
        for number in range(count):
            # Older than what is there: their ids sort before it.
            await work.jobs.add(replace(ended, id=f"00000000-0000-7000-8000-{number:012d}"))
        await work.commit()
    await database.close()


# ---- samples and series --------------------------------------------------------------------------------------------


async def attempt(url: str) -> tuple[str, str, str]:
    """(job, attempt, token) that heartbeats can be sent for."""
    database = SqlDatabase(url)
    async with database.read() as work:
        (job,) = (await work.jobs.page(state=None, name=None, limit=1, cursor=None)).items
    now, name, token = datetime.now(UTC), f"ffffffff-{job.id[9:]}", "benchmark"
    made = Attempt(id=name, job_id=job.id, number=1, state=AttemptState.LIVE, created_at=now, launched_at=now)
    async with database.write() as work:
        fresh = await work.jobs.get(job.id)
        await work.jobs.save(replace(fresh, state=JobState.STARTING, attempt=1, attempt_id=name, granted=1))
        await work.attempts.add(made)
        await work.attempts.add_token(name, secret_hash(token))
        await work.commit()
    await database.close()
    return job.id, name, token


def ingestion(ours: Running, job_id: str, name: str, token: str) -> Figures:
    """Heartbeats of 1,000 samples each."""
    with httpx.Client(base_url=ours.url, timeout=60, trust_env=False) as http:
        path, headers = f"/internal/v1/attempts/{name}/heartbeat", {"authorization": f"Bearer {token}"}
        bodies = [_beat(job_id, name, number, 1000) for number in range(20)]
        taken = [_timed(functools.partial(http.post, path, json=body, headers=headers)) for body in bodies]
    return {"samples_per_s": 20_000 / sum(taken), **_percentiles(taken)}


def _beat(job_id: str, name: str, number: int, samples: int) -> dict[str, Any]:
    at = datetime.now(UTC).isoformat()
    facts = [
        {"name": "beaten", "step": number * samples + step, "generation": 1, "value": 1.0, "at": at}
        for step in range(samples)
    ]
    return {
        **{"job_id": job_id, "attempt_id": name, "phase": "running", "step": number, "generation": 1},
        **{"world_size": 1, "facts_from": number, "facts": [{"samples": facts}], "at": at},
    }


async def lengthen(url: str, job_id: str, *, name: str = "loss", rank: int = -1) -> None:
    """A series of POINTS points, with a spike in it. Rank -1: the group's."""
    database = SqlDatabase(url)
    insert = sa.text(
        "INSERT INTO samples (job_id, name, rank, generation, step, value, at) "
        "WITH RECURSIVE counted(step) AS (SELECT 1 UNION ALL SELECT step + 1 FROM counted WHERE step < :points) "
        "SELECT :job_id, :name, :rank, 1, step, CASE step WHEN :spike THEN 1000.0 ELSE 1.0 END, 0 FROM counted"
    )
    values = {"points": POINTS, "spike": SPIKE, "job_id": job_id, "name": name, "rank": rank}
    async with database._writer.begin() as connection:
        await connection.execute(insert, values)
    await database.close()


async def roll(url: str, job_id: str) -> None:
    """What the service's retention does by itself once a minute."""
    database = SqlDatabase(url)
    while not await retention.roll(database, job_id):
        pass  # the service does it, too
    await database.close()


def series(ours: Running, job_id: str) -> Figures:
    with httpx.Client(base_url=ours.url, timeout=120, trust_env=False) as http:
        path, query = f"/v1/jobs/{job_id}/metrics", {"names": "loss", "points": "1000"}
        taken = [_timed(lambda: http.get(path, params=query)) for _ in range(7)]
        (found,) = http.get(path, params=query).json()["series"]
    if max(point["max"] for point in found["points"]) != 1000.0 or len(found["points"]) > 1000:
        raise RuntimeError("the spike is hidden, or there are too many points")
    return _percentiles(taken)


# ---- streams -------------------------------------------------------------------------------------------------------


def streams(ours: Running, *, slow: bool) -> Figures:
    """How long after a change is asked for each of the other streams has it; one is read at a byte a second or not."""
    readers = [_Reader(ours.url) for _ in range(STREAMS - 1)]
    stop, lazy = threading.Event(), threading.Thread(target=lambda: _dawdle(ours.url, stop))
    for reader in readers:
        reader.start()
    if slow:
        lazy.start()
    with httpx.Client(base_url=ours.url, timeout=60, trust_env=False) as http:
        for reader in readers:
            reader.open.wait(30)
        taken = []
        for _ in range(NOTICES):
            asked = time.perf_counter()
            job_id = http.post("/v1/jobs", json=SPEC).json()["id"]
            taken += [reader.seen(job_id) - asked for reader in readers]
    stop.set()
    for reader in readers:
        reader.over = True
    return _percentiles(taken)


class _Reader(threading.Thread):
    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url, self.over, self.open = url, False, threading.Event()
        self._at: dict[str, float] = {}
        self._told = threading.Condition()

    def run(self) -> None:
        client = httpx.Client(timeout=60, trust_env=False)
        with client, contextlib.suppress(httpx.TransportError), client.stream("GET", f"{self.url}/v1/stream") as got:
            self.open.set()
            for line in got.iter_lines():
                if self.over:
                    return
                if line.startswith("data: ") and '"state"' in line:
                    with self._told:
                        job_id = line.partition('"id":"')[2][:36] or line.partition('"id": "')[2][:36]
                        self._at.setdefault(job_id, time.perf_counter())
                        self._told.notify_all()

    def seen(self, job_id: str) -> float:
        with self._told:
            if not self._told.wait_for(lambda: job_id in self._at, timeout=30):
                raise RuntimeError("a stream was not told")
            return self._at[job_id]


def _dawdle(url: str, stop: threading.Event) -> None:
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect((host, int(port)))
        lazy.sendall(f"GET /v1/stream?after=0 HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        while not stop.wait(1.0):
            lazy.recv(1)


# ---- all of it -----------------------------------------------------------------------------------------------------


def figures() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, both(Path(name)) as (ours, bare):
        paths = {"ours": (ours.url, "/v1/jobs"), "bare": (bare.url, "/rows")}
        for _ in range(10):
            httpx.post(f"{ours.url}/v1/jobs", json=SPEC, trust_env=False).raise_for_status()
        few = reading(ours)
        for url, path in paths.values():
            submissions(url, path)
        found = rounds.measure(list(paths), rounds=ROUNDS, turn=lambda one: submissions(*paths[one]))
        told = {one: {part: rounds.median(found[one], part) for part in ("per_s", "p50_s", "p95_s")} for one in paths}
        ratio = rounds.ratio(found["ours"], found["bare"], "per_s")
        asyncio.run(fill(ours.database, HISTORY))
        many = reading(ours)
        quiet, slow = streams(ours, slow=False), streams(ours, slow=True)
        job_id, attempt_id, token = asyncio.run(attempt(ours.database))
        beats = ingestion(ours, job_id, attempt_id, token)
        asyncio.run(lengthen(ours.database, job_id))
        raw = series(ours, job_id)
        began = time.perf_counter()
        asyncio.run(roll(ours.database, job_id))
        rolling_s = time.perf_counter() - began
        return {
            "submissions": {**told, "ours/bare": [ratio.median, ratio.low, ratio.high]},
            "list": {
                "of 10": few["list"],
                "of 10,000": many["list"],
                "p95": many["list"]["p95_s"] / few["list"]["p95_s"],
            },
            "show": {"of 10": few["show"], "of 10,000": many["show"]},
            "samples": beats,
            "series of 1,000,000": {"raw": raw, "rolled up": series(ours, job_id), "rolling up once_s": rolling_s},
            "49 streams": {"alone": quiet, "beside one of 1 byte/s": slow},
        }
