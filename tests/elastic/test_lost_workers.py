"""Workers killed with SIGKILL: the survivors stay in their processes and the curve is the undisturbed one."""

from __future__ import annotations

import os
import signal

import pytest

from tests.elastic.cluster import Attempt, Bench
from tests.elastic.reference import largest_difference, undisturbed

# Real processes on a machine that others may use as well.
pytestmark = pytest.mark.timeout(900)

# No step that the mirrors are behind: copies are due at the latest when their cost is a twentieth of the steps between.
MANY = 40


def kill(attempt: Attempt, *pids: int) -> None:
    """And wait until the job goes on."""
    before = len(attempt.service.events("recovered"))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    attempt.service.wait(lambda: len(attempt.service.events("recovered")) > before, what="a recovery")


@pytest.mark.parametrize(("engine", "stage"), [("zero", 0), ("zero", 3), ("fsdp", 3)])
def test_survivors_of_kills_go_on_without_a_disk_and_replacements_join(bench: Bench, engine: str, stage: int) -> None:
    spec = bench.spec(engine=engine, stage=stage, steps=400)
    with bench.attempt(spec, workers=3) as attempt:
        for round_number in (1, 2):
            attempt.wait_step(30 * round_number)
            attempt.wait_size(3)
            *survivors, victim = attempt.service.pids()
            kill(attempt, victim)
            attempt.wait_size(3)
            assert set(survivors) <= set(attempt.service.pids()), "a survivor changed its process"
            assert attempt.service.events("worker_lost")[-1].payload["pid"] == victim
        bench.hurry()
        attempt.ends("succeeded")
    for recovered in attempt.service.events("recovered"):
        assert (recovered.payload["workers"], recovered.payload["from"]) == (2, "survivors")
        assert recovered.payload["redone_steps"] <= (1 if stage == 0 else MANY)
        assert recovered.payload["pause_s"] < 5
    curve, reference = attempt.service.curve(), undisturbed(spec, bench.folder / "cache")
    assert largest_difference(curve, {step: reference[step] for step in range(1, 51)}) < 1e-5
    assert largest_difference(curve, reference) < 1e-3


def test_where_both_holders_of_a_shard_are_lost_the_checkpoint_is_taken_else_the_start(bench: Bench) -> None:
    spec = bench.spec(stage=2, steps=400, every_steps=20)
    with bench.attempt(spec, workers=3) as attempt:
        attempt.wait_step(5)
        kill(attempt, *attempt.service.pids()[1:])
        attempt.wait_step(45)
        attempt.wait_size(3)
        kill(attempt, *attempt.service.pids()[1:])
        bench.hurry()
        attempt.ends("succeeded")
    first, second = (event.payload for event in attempt.service.events("recovered")[:2])
    assert (first["from"], first["from_step"], first["workers"]) == ("start", 0, 1)
    assert second["from"] == "checkpoint"
    assert second["from_step"] % 20 == 0
    assert second["redone_steps"] < 40
    assert largest_difference(attempt.service.curve(), undisturbed(spec, bench.folder / "cache")) < 1e-3
