"""Workers that do not come: what is said of them, and when nobody waits any longer."""

from __future__ import annotations

import pytest

from service.domain.wire import Outcome
from tests.unit.controller.troupe import Troupe
from workers.controller.ending import MISSING_S
from workers.controller.group import obstacle
from workers.controller.recruits import FAILED_ROUNDS
from workers.worker.messages import Crashed, Saved

FULL = "the cluster has no free slot with gpu: 1"


def test_a_long_wait_is_a_sentence_in_every_heartbeat_and_one_event() -> None:
    troupe = Troupe(workers=1)
    troupe.turn()
    troupe.warm()
    troupe.join()
    troupe.order(workers=2)
    troupe.turn()
    troupe.turn(after_s=9)
    assert troupe.uplink.shown.note == ""
    troupe.turn(after_s=2)
    assert troupe.uplink.shown.note == f"waiting for 1 more worker for 10 s: {FULL}"
    troupe.turn(after_s=30)
    assert troupe.uplink.shown.note == f"waiting for 1 more worker for 40 s: {FULL}"
    told = [payload["message"] for kind, payload in troupe.uplink.events if kind == "workers_missing"]
    assert told == [f"Waiting for 1 more worker for 10 s: {FULL}"]
    troupe.order(workers=1)
    troupe.turn()
    assert troupe.uplink.shown.note == "", "nobody is missing any more"


def test_an_attempt_that_never_gets_its_workers_ends_and_says_why() -> None:
    troupe = Troupe(workers=2, minimum=2)
    troupe.turn()
    troupe.turn(after_s=MISSING_S - 1)
    assert troupe.outcome is None
    troupe.turn(after_s=2)
    troupe.turn()
    assert (troupe.outcome.result, troupe.outcome.cause) == ("failed", "machine")
    assert troupe.outcome.reason == f"gave up waiting for 2 more workers for 1800 s: {FULL}"


def test_survivors_that_wait_in_vain_are_saved_before_the_attempt_ends() -> None:
    troupe = Troupe(workers=2, minimum=2, stage=0)
    troupe.turn()
    troupe.warm()
    troupe.join()
    troupe.die("w2")
    troupe.turn()
    troupe.report("w1", troupe.broken("w1", step=9))
    troupe.turn()
    troupe.turn(after_s=MISSING_S + 1)
    troupe.turn()
    assert troupe.newest().members == ("w1",)
    troupe.join(step=9, source="survivors")
    troupe.turn()
    troupe.stop(step=10)
    troupe.report("w1", Saved(generation=2, step=10, uri="u/step-00000010", size_bytes=1, files=2, duration_s=0.1))
    troupe.turn()
    assert troupe.outcome == Outcome(result="paused", reason=f"gave up waiting for 1 more worker for 1800 s: {FULL}")


@pytest.mark.parametrize("crashes", [False, True], ids=["constructor", "warm up"])
def test_recruits_that_die_young_are_tried_a_few_times_only(crashes: bool) -> None:
    troupe = Troupe(workers=3, minimum=3, stage=0)
    if crashes:
        # Without a generation a user's exception ends the job at once; a machine's does not.
        cause = "machine"
    for _ in range(FAILED_ROUNDS):
        assert troupe.outcome is None
        troupe.turn(after_s=100)
        for hand in list(troupe.group):
            if crashes:
                troupe.report(hand.id, Crashed(generation=0, step=0, cause=cause, reason="no such file"))  # type: ignore[arg-type]
            else:
                troupe.die(hand.id)
        troupe.turn(after_s=0)
    troupe.turn()
    assert (troupe.outcome.result, troupe.outcome.cause) == ("failed", "machine")
    reason = "no such file" if crashes else "SIGKILL"
    assert troupe.outcome.reason == f"{FAILED_ROUNDS} tries to start a worker failed in a row, the last: {reason}"


def test_a_running_job_outlives_recruits_that_fail() -> None:
    troupe = Troupe(workers=1)
    troupe.turn()
    troupe.warm()
    troupe.join()
    troupe.order(workers=2)
    troupe.at("w1", "computing", step=1)
    for _ in range(3 * FAILED_ROUNDS):
        troupe.turn(after_s=65)
        for hand in list(troupe.group):
            if hand.ready is None:
                troupe.die(hand.id)
        troupe.steps(troupe.uplink.shown.step + 1)
    assert troupe.outcome is None
    assert troupe.uplink.shown.note.endswith("the last one could not start (SIGKILL)")


@pytest.mark.parametrize(
    ("wanted", "free", "said"),
    [
        ({"CPU": 0, "GPU": 8}, {"CPU": 8, "GPU": 4}, "no node of the cluster has gpu: 8"),
        ({"CPU": 1, "GPU": 1}, {"CPU": 8}, "the cluster has no free slot with cpu: 1, gpu: 1"),
        (
            {"CPU": 1, "memory": 2**31},
            {"CPU": 8, "memory": 2**30},
            "the cluster has no free slot with cpu: 1, memory_gb: 2",
        ),
        ({"CPU": 1}, {"CPU": 8}, "Ray has not placed it yet on a slot with cpu: 1"),
    ],
)
def test_the_obstacle_is_named_as_far_as_the_nodes_tell(
    wanted: dict[str, float], free: dict[str, float], said: str
) -> None:
    nodes = [{"CPU": 8.0, "GPU": 4.0, "memory": 2.0**33}] * 2
    assert obstacle(wanted, nodes=nodes, free=free) == said
