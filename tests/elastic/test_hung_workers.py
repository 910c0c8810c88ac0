"""Workers that live and do nothing: stopped, or stuck in the user's code. The others go on in their processes."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.elastic.cluster import Bench, gone
from tests.elastic.reference import largest_difference, undisturbed

# Real processes on a machine that others may use as well.
pytestmark = pytest.mark.timeout(900)

SILENCE_S = 4.0


def test_a_stopped_worker_and_one_stuck_in_the_users_code_are_ended_and_the_others_go_on(bench: Bench) -> None:
    spec = {**bench.spec(stage=0, steps=200), "hang": {"step_s": 6.0, "silence_s": SILENCE_S}}
    with bench.attempt(spec, workers=3) as attempt:
        attempt.wait_step(20)
        attempt.wait_size(3)
        *survivors, stopped = attempt.service.pids()
        began = time.monotonic()
        os.kill(stopped, signal.SIGSTOP)
        attempt.service.wait(lambda: attempt.service.events("recovered"), what="a recovery")
        assert time.monotonic() - began < SILENCE_S + 2 + 1.5, "silence, two seconds, and a few steps"
        assert gone([stopped]), "its node kills what does not end by itself"
        attempt.wait_size(3)
        # A first step of a generation is given more time.
        attempt.wait_step(attempt.service.last.step + 3)
        first, stuck, other = attempt.service.pids()
        assert set(survivors) <= {first, stuck, other}, "a survivor changed its process"

        (bench.folder / f"hold-{stuck}").touch()
        attempt.service.wait(lambda: len(attempt.service.events("recovered")) == 2, within_s=60, what="a recovery")
        assert gone([stuck])
        attempt.wait_size(3)
        assert {first, other} <= set(attempt.service.pids()), "a survivor changed its process"
        bench.hurry()
        attempt.ends("succeeded")
    (report,) = attempt.service.events("worker_hung")
    doing = {each["rank"]: (each["doing"], each["place"]) for each in report.payload["where"]}
    assert [doing[rank][0] for rank in range(3)] == ["waiting", "computing", "waiting"]
    assert doing[1][1].startswith("forward (")
    assert "user_code.py:" in doing[1][1]
    assert [event.payload["pid"] for event in attempt.service.events("worker_lost")] == [stopped, stuck]
    assert all(event.payload["redone_steps"] <= 1 for event in attempt.service.events("recovered"))
    assert largest_difference(attempt.service.curve(), undisturbed(spec, bench.folder / "cache")) < 1e-3
