"""Stage and offload change while the job trains, in the same processes."""

from __future__ import annotations

import pytest

from service.domain.arrangement import Arrangement
from service.domain.spec import Offload
from tests.elastic.cluster import Bench
from tests.elastic.reference import largest_difference, undisturbed

# Real processes on a machine that others may use as well.
pytestmark = pytest.mark.timeout(900)


def test_stage_and_offload_change_at_a_boundary_and_no_step_is_redone(bench: Bench) -> None:
    spec = bench.spec(stage=1, steps=200)
    wishes = [
        Arrangement(stage=3),
        Arrangement(stage=3, offload=Offload(optimizer="nvme", params="cpu")),
        Arrangement(stage=0),
        Arrangement(stage=2, offload=Offload(optimizer="cpu")),
    ]
    with bench.attempt(spec, workers=2) as attempt:
        attempt.wait_step(5)
        pids = attempt.service.pids()
        for count, wish in enumerate(wishes, start=1):
            attempt.service.arrangement = wish
            attempt.service.wait(lambda count=count: len(attempt.service.events("rearranged")) == count, what=str(wish))
        attempt.service.workers = 3
        attempt.wait_size(3)
        assert set(pids) < set(attempt.service.pids()), "the same processes go on"
        attempt.service.wait(lambda: attempt.service.events("resized"), what="a resize")
        bench.hurry()
        attempt.ends("succeeded")
    told = attempt.service.events("rearranged", "resized")
    assert [event.payload["redone_steps"] for event in told] == [0] * 5
    assert attempt.service.events("recovered", "worker_lost") == []
    curve, reference = attempt.service.curve(), undisturbed(spec, bench.folder / "cache")
    last = told[-1].step + 5
    assert largest_difference(curve, {step: reference[step] for step in range(1, min(last, 100))}) < 1e-5
    assert largest_difference(curve, reference) < 1e-3
