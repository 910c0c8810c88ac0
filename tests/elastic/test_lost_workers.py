"""Workers killed with SIGKILL: the survivors stay in their processes and the curve is the undisturbed one."""

from __future__ import annotations

import os
import signal

import pytest

from tests.elastic.cluster import Bench
from tests.elastic.reference import largest_difference, undisturbed
from tests.elastic.specs import paced

STEPS = 300


@pytest.mark.parametrize(("stage", "every_steps", "source"), [(0, 100_000, "survivors"), (3, 20, "checkpoint")])
def test_survivors_of_a_kill_go_on_and_a_replacement_joins(
    bench: Bench, stage: int, every_steps: int, source: str
) -> None:
    spec = paced(stage=stage, steps=STEPS, every_steps=every_steps)
    with bench.attempt(spec, workers=3) as attempt:
        attempt.wait_step(30)
        victim, *survivors = reversed(attempt.service.pids())
        os.kill(victim, signal.SIGKILL)
        attempt.service.wait(lambda: attempt.service.events("recovered"), what="a recovery")
        attempt.wait_size(3)
        assert set(survivors) <= set(attempt.service.pids()), "a survivor changed its process"
        attempt.ends("succeeded")
    lost, recovered = attempt.service.events("worker_lost")[0], attempt.service.events("recovered")[0]
    assert lost.payload["pid"] == victim
    assert recovered.payload["workers"] == 2
    assert recovered.payload["from"] == source
    assert recovered.payload["redone_steps"] <= (1 if source == "survivors" else every_steps)
    assert recovered.payload["pause_s"] < 5
    reference = undisturbed(spec, bench.folder / "cache")
    assert largest_difference(attempt.service.curve(), reference) < 1e-3


def test_without_a_checkpoint_a_lost_shard_means_step_0_in_the_same_processes(bench: Bench) -> None:
    spec = paced(stage=2, steps=60)
    with bench.attempt(spec, workers=2) as attempt:
        attempt.wait_step(5)
        survivor, victim = attempt.service.pids()
        os.kill(victim, signal.SIGKILL)
        attempt.service.wait(lambda: attempt.service.events("recovered"), what="a recovery")
        assert attempt.service.pids()[0] == survivor
        attempt.ends("succeeded")
    recovered = attempt.service.events("recovered")[0]
    assert (recovered.payload["from"], recovered.payload["from_step"]) == ("start", 0)
    assert largest_difference(attempt.service.curve(), undisturbed(spec, bench.folder / "cache")) < 1e-5
