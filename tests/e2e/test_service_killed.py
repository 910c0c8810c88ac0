"""The service dies while a job trains; the job does not notice."""

from __future__ import annotations

from api.client import ElastaneClient
from examples.local_service import LocalService
from tests.e2e.conftest import STEPS
from tests.e2e.journey import Curve, assert_same_curve, curve, events, spec, wait_for_end, wait_for_step


def test_a_killed_service_finds_its_job_again_and_counts_nothing_twice(
    service: LocalService, client: ElastaneClient, undisturbed: Curve
) -> None:
    job_id = client.submit(spec(steps=STEPS, stage=2, workers=2))["id"]
    wait_for_step(client, job_id, 10)
    service.kill()
    service.start()
    job = wait_for_end(client, job_id)

    assert_same_curve(curve(client, job_id), undisturbed, steps=STEPS)
    assert job["attempt"] == 1
    assert len(events(client, job_id, "started")) == 1
    assert len(events(client, job_id, "succeeded")) == 1
    (loss,) = client.metrics(job_id, names="loss", points=100_000)["series"]
    assert loss["total"] == STEPS
