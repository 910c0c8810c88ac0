"""The specs of `examples/` run as they stand: relative paths, modules of one's own, sizes of one's own."""

from __future__ import annotations

import yaml

from api.client import ElastaneClient
from examples.local_service import ROOT
from tests.e2e import journey

STEPS = 3


def test_every_spec_of_the_examples_trains(client: ElastaneClient) -> None:
    jobs = {}
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        document = yaml.safe_load(path.read_text())
        training = {**document.get("training", {}), "steps": STEPS}
        jobs[path.name] = client.submit({**document, "training": training})["id"]
    assert len(jobs) >= 4
    for job_id in jobs.values():
        journey.wait_for_end(client, job_id, timeout_s=180.0)
