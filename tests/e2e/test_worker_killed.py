"""A worker dies without a word."""

from __future__ import annotations

import os
import signal

from api.client import ElastaneClient
from tests.e2e.conftest import FEWER_STEPS
from tests.e2e.journey import Curve, assert_same_curve, curve, events, spec, wait_for_end, wait_for_step


def test_a_killed_worker_costs_steps_but_neither_the_job_nor_its_curve(
    client: ElastaneClient, undisturbed: Curve
) -> None:
    job_id = client.submit(spec(steps=FEWER_STEPS, stage=3, workers={"min": 1, "max": 3}))["id"]
    wait_for_step(client, job_id, 40)
    victim = client.workers(job_id)["items"][-1]["pid"]
    os.kill(victim, signal.SIGKILL)
    wait_for_end(client, job_id)

    assert_same_curve(curve(client, job_id), undisturbed, steps=FEWER_STEPS)
    assert [event["payload"]["pid"] for event in events(client, job_id, "worker_lost")] == [victim]
    (recovered,) = events(client, job_id, "recovered")
    assert recovered["payload"]["from_step"] >= 1
    assert recovered["payload"]["redone_steps"] >= 0
