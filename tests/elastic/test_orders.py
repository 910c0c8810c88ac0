"""What the service orders, and what happens when it is silent."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from tests.elastic.cluster import Bench, gone
from tests.elastic.reference import largest_difference, undisturbed

# Real processes on a machine that others may use as well.
pytestmark = pytest.mark.timeout(900)


def test_a_service_that_is_away_loses_nothing_and_a_paused_job_resumes_at_another_size_and_stage(bench: Bench) -> None:
    spec = bench.spec(stage=3, steps=60, every_steps=10)
    with bench.attempt(spec, workers=2, job="pausing") as attempt:
        attempt.wait_step(5)
        attempt.service.is_away = True
        beats = len(attempt.service.beats)
        time.sleep(2.5)
        assert len(attempt.service.beats) == beats
        attempt.service.is_away = False
        attempt.wait_step(20)
        attempt.service.action = "pause"
        attempt.ends("paused")
        first = attempt.service.curve()
    stopped = max(first)
    assert sorted(first) == list(range(1, stopped + 1))
    told = [fact.checkpoint for fact in attempt.service.facts if fact.checkpoint]
    saved = [report.step for report in told if not report.removed]
    assert saved == sorted({*range(10, stopped + 1, 10), stopped})
    assert [report.step for report in told if report.removed] == saved[:-2]
    bench.hurry()
    with bench.attempt({**spec, "stage": 1}, workers=1, job="pausing", number=2) as attempt:
        attempt.ends("succeeded")
        second = attempt.service.curve()
    assert min(second) == stopped + 1
    assert largest_difference({**first, **second}, undisturbed(spec, bench.folder / "cache")) < 1e-5
    with bench.attempt(spec, workers=2, job="pausing", number=3) as attempt:
        attempt.ends("succeeded")
        assert attempt.service.curve() == {}


def test_a_lost_meeting_point_is_replaced_and_a_cancelled_job_is_gone_within_five_seconds(bench: Bench) -> None:
    # A superseded attempt leaves its own to the newer one, and it goes a little later.
    of_others = set(bench.pids("ray::Rendezvous"))
    with bench.attempt(bench.spec(stage=2, steps=10_000), workers=1) as attempt:
        attempt.wait_step(2)
        (meeting_point,) = set(bench.pids("ray::Rendezvous")) - of_others
        os.kill(meeting_point, signal.SIGKILL)
        attempt.scale(2)
        attempt.service.wait(lambda: attempt.service.events("resized"), what="a resize")
        assert attempt.service.events("resized")[0].payload["redone_steps"] == 0
        assert attempt.service.events("recovered") == []
        pids = attempt.service.pids()
        began = time.monotonic()
        attempt.service.action = "cancel"
        attempt.service.wait(lambda: attempt.service.outcome, within_s=5, what="an outcome")
        assert gone(pids, within_s=5 - (time.monotonic() - began))
        attempt.ends("cancelled")


def test_an_exception_of_the_users_code_fails_the_job_with_its_own_words(bench: Bench) -> None:
    with bench.attempt(bench.spec(stage=2, steps=50, broken=61), workers=2) as attempt:
        outcome = attempt.ends("failed")
    assert outcome.cause == "user"
    assert outcome.reason.startswith("ValueError: sample 61 has no label (")
    assert "user_code.py:" in outcome.reason
    lines = [json.loads(line) for file in (bench.folder / "logs").glob("*/*.jsonl") for line in file.open()]
    assert any("Traceback" in line["text"] and "no label" in line["text"] for line in lines)


def test_a_new_controller_adopts_the_workers_of_a_killed_one_and_a_superseded_one_stops_them(bench: Bench) -> None:
    spec = bench.spec(stage=2, steps=4000)
    with bench.attempt(spec, workers=2, job="left") as attempt:
        attempt.wait_step(10)
        pids = attempt.service.pids()
        os.kill(attempt.process.pid, signal.SIGKILL)
        attempt.process.wait()
        before, first = attempt.service.last.step, attempt.service.curve()
    with bench.attempt(spec, workers=2, job="left", number=2) as attempt:
        attempt.wait_step(before + 1)
        assert attempt.service.pids() == pids, "the same processes go on"
        assert attempt.service.events("adopted")[0].step >= before
        assert attempt.service.last.generation == 1
        curve = first | attempt.service.curve()
        assert sorted(curve) == list(range(1, max(curve) + 1)), "no point died with the controller"
        attempt.scale(3)
        attempt.service.wait(lambda: attempt.service.events("resized"), what="a resize")
        pids = attempt.service.pids()
        attempt.service.superseded = True
        assert gone(pids)
        attempt.process.wait(20)


def test_workers_that_hear_from_no_controller_save_and_leave(bench: Bench) -> None:
    with bench.attempt(bench.spec(stage=3, steps=10_000), workers=2, job="orphan", orphan_timeout_s=3.0) as attempt:
        attempt.wait_step(5)
        pids = attempt.service.pids()
        os.kill(attempt.process.pid, signal.SIGKILL)
        attempt.process.wait()
        assert gone(pids, within_s=20)
    saved = list((bench.folder / "checkpoints" / "orphan").glob("step-*/manifest.json"))
    assert len(saved) == 1
