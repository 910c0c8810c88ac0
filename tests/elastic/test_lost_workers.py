"""More workers killed than mirrors cover: the disk has the state. The kills that they cover are in `test_resize.py`."""

from __future__ import annotations

import os
import signal

import pytest

from tests.elastic.cluster import Attempt, Bench
from tests.elastic.reference import largest_difference, undisturbed

# Real processes on a machine that others may use as well.
pytestmark = pytest.mark.timeout(900)


def kill(attempt: Attempt, *pids: int) -> None:
    """And wait until the job goes on."""
    before = len(attempt.service.events("recovered"))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    attempt.service.wait(lambda: len(attempt.service.events("recovered")) > before, what="a recovery")


def test_where_both_holders_of_a_shard_are_lost_the_checkpoint_is_taken_else_the_start(bench: Bench) -> None:
    spec = bench.spec(stage=2, steps=200, every_steps=20)
    with bench.attempt(spec, workers=3) as attempt:
        attempt.wait_step(5)
        attempt.wait_size(3)
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
