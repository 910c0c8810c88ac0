"""A job changes its size while it trains."""

from __future__ import annotations

from api.client import ElastaneClient
from tests.e2e.conftest import STEPS
from tests.e2e.journey import (
    Curve,
    assert_same_curve,
    curve,
    events,
    spec,
    wait_for_end,
    wait_for_step,
    wait_for_workers,
)


def test_growing_and_shrinking_leave_the_curve_as_it_was(client: ElastaneClient, undisturbed: Curve) -> None:
    job_id = client.submit(spec(steps=STEPS, stage=2, workers={"min": 1, "max": 3}))["id"]
    client.scale(job_id, 2)
    wait_for_step(client, job_id, 5)
    wait_for_workers(client, job_id, 2)
    for workers in (3, 2):
        client.scale(job_id, workers)
        wait_for_workers(client, job_id, workers)
    wait_for_end(client, job_id)

    assert_same_curve(curve(client, job_id), undisturbed, steps=STEPS)
    sizes = [(event["payload"]["from"], event["payload"]["to"]) for event in events(client, job_id, "resized")]
    assert sizes[-2:] == [(2, 3), (3, 2)]
    assert all(event["payload"]["pause_s"] > 0 for event in events(client, job_id, "resized"))
