"""SIGKILL at random moments of saves: then a whole checkpoint is found, at most one save old, never a torn one."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest
import torch
from moto.server import ThreadedMotoServer

from tests.crash.victims import JOB, METAS, engine_of
from tests.fakes.memory_engine import MemoryEngine
from tests.unit.layout.shards import flat
from workers.checkpoint import catalogue, claims
from workers.checkpoint.reader import read_into
from workers.checkpoint.store import LocalStore, Store, open_store

ROOT = Path(__file__).resolve().parents[2]
POINTS = int(os.environ.get("ELASTANE_CRASH_POINTS", "24"))
SEED = int(os.environ.get("ELASTANE_CRASH_SEED", "5"))
# A run of CI is bounded: on a crowded machine fewer points count, but never fewer than this.
BOUND_S = 25.0 if "ELASTANE_CRASH_POINTS" not in os.environ else 3600.0
LEAST = 6
WORLD_SIZE = 2

pytestmark = pytest.mark.timeout(3600)


@dataclass(frozen=True, kw_only=True)
class Left:
    """What the victims said before they died."""

    started: int
    published: int


class Victims:
    """The forking process; its children are killed by their ids."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.victims"],
            cwd=ROOT,
            env={**os.environ, **environment, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._said()[0] == "ready"

    def die(self, order: dict[str, object], *, delay_s: float, all_at_once: bool) -> Left:
        """Let them save, wait, kill: all ranks, or one of them a moment before the others."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        words: list[tuple[str, int]] = []
        pids: list[int] = []
        # Delays count from the first save, not from the fork; the very first must end, or nothing could be found.
        awaited = ("started", int(str(order["after"])) + 1) if order["after"] else ("published", 1)
        while len(pids) < WORLD_SIZE or awaited not in words:
            words.append(self._said())
            pids += [words[-1][1]] if words[-1][0] == "child" else []
        time.sleep(delay_s)
        for pid in random.Random(pids[0]).sample(pids, len(pids)):
            os.kill(pid, signal.SIGKILL)
            if not all_at_once:
                time.sleep(0.01)
        while words[-1][0] != "ended":
            words.append(self._said())
        assert words[-1] == ("ended", 0), "a rank ended by itself: its words are on standard error"
        return Left(
            started=max(number for word, number in words if word == "started"),
            published=max((number for word, number in words if word == "published"), default=int(str(order["after"]))),
        )

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _said(self) -> tuple[str, int]:
        assert self._process.stdout is not None
        word, number = self._process.stdout.readline().split()
        return word, int(number)


def check(store: Store, left: Left, *, attempt: int) -> int:
    """As the next attempt would: claim, collect, find, prove, read; returns the step."""
    claims.claim(store, job=JOB, attempt=attempt)
    catalogue.collect(store, job=JOB, attempt=attempt)
    found = catalogue.newest_complete(store, JOB, verify_bytes=True)
    assert found.manifest is not None, left
    step = found.manifest.step
    assert left.published <= step <= left.started, (left, step)
    assert left.started - step <= 1, (left, step)
    engine = MemoryEngine(METAS, rule=flat, rank=0, world_size=1)
    read_into(engine, rank=0, manifest=found.manifest, store=store)
    for key, values in engine_of(0, 1, step=step).state().items():
        assert torch.equal(engine.state()[key], values), (key, step)
    assert engine.scalars() == {"steps": {"table": step}}
    for other in catalogue.steps(store, JOB):
        catalogue.inspect(store, JOB, other, verify_bytes=True)
    return step


def killed_again_and_again(uri: str, victims: Victims, *, points: int, longest_s: float) -> int:
    """Attempt after attempt in one place, each killed; returns how many."""
    chance, store = random.Random(SEED), open_store(uri)
    step, began = 0, time.monotonic()
    for attempt in range(1, points + 1):
        if attempt > LEAST and time.monotonic() - began > BOUND_S:
            return attempt - 1
        delay_s, all_at_once = chance.uniform(0.0, longest_s), chance.random() < 0.5
        order = {
            "store": uri,
            "world_size": WORLD_SIZE,
            "attempt": attempt,
            "after": step,
            "keep_last": chance.choice([1, 1, 2, 3]),
        }
        left = victims.die(order, delay_s=delay_s, all_at_once=all_at_once)
        step = check(store, left, attempt=attempt + 1)
    return points


@pytest.fixture
def victims() -> Iterator[Callable[..., Victims]]:
    born: list[Victims] = []

    def make(**environment: str) -> Victims:
        born.append(Victims(environment))
        return born[-1]

    yield make
    for each in born:
        each.end()


def test_kills_at_random_moments_of_saves_to_a_folder_tear_nothing(
    tmp_path: Path, victims: Callable[..., Victims]
) -> None:
    kills = killed_again_and_again(str(tmp_path), victims(), points=POINTS, longest_s=0.4)
    print(f"{kills} kills of saves to a folder")
    assert kills >= min(POINTS, LEAST)
    assert isinstance(open_store(str(tmp_path)), LocalStore)


def test_kills_at_random_moments_of_uploads_to_s3_tear_nothing(
    monkeypatch: pytest.MonkeyPatch, victims: Callable[..., Victims]
) -> None:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        environment = {
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="crash")
        points = max(LEAST, POINTS // 4)
        kills = killed_again_and_again("s3://crash/jobs", victims(**environment), points=points, longest_s=2.0)
        print(f"{kills} kills of uploads to S3")
        assert kills >= LEAST
    finally:
        server.stop()
