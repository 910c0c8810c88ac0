"""Neither the stage nor the number of workers shows in the losses."""

from __future__ import annotations

import pytest

from api.client import ElastaneClient
from tests.e2e.journey import Curve, assert_same_curve, curve, run, spec


@pytest.mark.parametrize(("stage", "workers"), [(1, 2), (3, 3)])
def test_any_stage_on_any_number_of_workers_gives_the_curve_of_one(
    client: ElastaneClient, undisturbed: Curve, stage: int, workers: int
) -> None:
    job = run(client, spec(steps=30, stage=stage, workers=workers))
    assert_same_curve(curve(client, job["id"]), undisturbed, steps=30)
