"""Four slots, jobs of three priorities that come and go, real workers: never more than four, the low one only shrinks.

Briefly here; 200 ticks: ELASTANE_POOL_TICKS=200 python -m pytest tests/e2e/test_three_priorities.py
"""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import dataclass, field

import pytest

from api.client import ENDED, ElastaneClient
from service.adapters.processes import is_alive
from service.settings import Settings
from tests.e2e.journey import Json, events, spec, wait_until

TICKS = int(os.environ.get("ELASTANE_POOL_TICKS", "20"))
TICK_S = float(Settings.model_fields["tick_s"].default)
SLOTS = 4
# A look takes a moment, and so does a heartbeat that tells of a worker which has left.
SLACK_S = 1.5


@dataclass
class Pool:
    """What is seen from outside: jobs, and the processes of their workers."""

    client: ElastaneClient
    low: str
    others: list[str] = field(default_factory=list)
    pids: set[int] = field(default_factory=set)
    most: int = 0
    freed_at: dict[str, float] = field(default_factory=dict)
    waits_s: list[float] = field(default_factory=list)

    def look(self) -> dict[str, Json]:
        jobs = {job_id: self.client.job(job_id) for job_id in (self.low, *self.others)}
        for job_id in jobs:
            self.pids |= {worker["pid"] for worker in self.client.workers(job_id)["items"]}
        self.pids = {pid for pid in self.pids if is_alive(pid)}
        self.most = max(self.most, len(self.pids))
        return jobs

    def note(self, jobs: dict[str, Json], high: str) -> None:
        """How long the high job waits once the low one has left it room."""
        busy = sum(job["workers"]["actual"] for job_id, job in jobs.items() if job_id != high)
        if busy <= SLOTS - 2 and jobs[high]["state"] == "queued":
            self.freed_at.setdefault(high, time.monotonic())
        elif jobs[high]["state"] != "queued" and high in self.freed_at:
            self.waits_s.append(time.monotonic() - self.freed_at.pop(high))


def has_all(job: Json) -> bool:
    return bool(job["state"] == "running" and job["workers"]["actual"] == SLOTS)


@pytest.mark.timeout(TICKS * 6 + 420)
def test_the_high_job_starts_when_the_low_one_shrank_and_the_low_one_loses_no_step(client: ElastaneClient) -> None:
    low = client.submit(spec(steps=100_000, stage=2, workers={"min": 1, "max": 4}, priority=10))["id"]
    pool = Pool(client, low)
    wait_until(client, low, f"running on {SLOTS} workers", has_all, timeout_s=180)
    kinds = itertools.cycle([(90, 2), (50, 1)])
    began_s, high = time.monotonic(), ""
    while time.monotonic() - began_s < TICKS * TICK_S or len(pool.others) < 3:
        assert time.monotonic() - began_s < TICKS * TICK_S + 200, "two jobs did not come and go"
        jobs = pool.look()
        if all(jobs[job_id]["state"] in ENDED for job_id in pool.others[-1:]):
            priority, workers = next(kinds)
            made = client.submit(spec(steps=20, stage=0, workers=workers, priority=priority))["id"]
            pool.others.append(made)
            high = made if priority == 90 else ""
        elif high:
            pool.note(jobs, high)
        time.sleep(0.1)
    assert client.job(low)["state"] not in ENDED, client.job(low)["reason"]
    client.cancel(low)
    assert pool.most <= SLOTS
    assert all(wait_s <= 2 * TICK_S + SLACK_S for wait_s in pool.waits_s), pool.waits_s
    resized = [event["payload"] for event in events(client, low, "resized")]
    assert any(each["to"] < each["from"] for each in resized), "the low job never shrank"
    assert {each["redone_steps"] for each in resized} == {0}
    assert [event["kind"] for event in events(client, low, "requeued")] == [], "it was stopped, not shrunk"
    (losses,) = client.metrics(low, names="loss", points=100_000)["series"]
    steps = [point["step"] for point in losses["points"]]
    assert steps == list(range(1, len(steps) + 1))
