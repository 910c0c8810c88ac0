"""A paused job holds no worker, and goes on where it was, on as many as it is given then."""

from __future__ import annotations

from api.client import ElastaneClient
from tests.e2e.conftest import FEWER_STEPS
from tests.e2e.journey import Curve, Json, assert_same_curve, curve, spec, wait_for_end, wait_for_step, wait_until


def holds_no_worker(job: Json) -> bool:
    """Processes that are on their way out still count as workers, as they should."""
    return bool(job["state"] == "paused" and job["workers"]["actual"] == 0)


def test_a_paused_job_goes_on_with_other_workers_at_another_stage(client: ElastaneClient, undisturbed: Curve) -> None:
    job_id = client.submit(spec(steps=FEWER_STEPS, stage=3, workers={"min": 1, "max": 2}))["id"]
    wait_for_step(client, job_id, 20)
    client.pause(job_id)
    paused = wait_until(client, job_id, "paused without workers", holds_no_worker)
    assert client.workers(job_id)["items"] == []

    client.scale(job_id, 3, stage=1)
    client.resume(job_id)
    job = wait_for_step(client, job_id, paused["step"] + 1)
    assert (job["workers"]["actual"], job["stage"]) == (3, 1)
    wait_for_end(client, job_id)
    assert_same_curve(curve(client, job_id), undisturbed, steps=FEWER_STEPS)
