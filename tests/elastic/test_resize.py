"""Planned resizes, and kills between them: at an agreed boundary, in the same processes, with nothing lost."""

from __future__ import annotations

import os
import signal

import pytest

from tests.elastic.cluster import Attempt, Bench
from tests.elastic.reference import largest_difference, undisturbed

# Real processes on a machine that others may use as well.
pytestmark = pytest.mark.timeout(900)

STEPS = 200
# Of the paced model: a tied table and three layers, two of them with a bias.
NUMEL = 64 * 24 + 3 * 24 * 24 + 2 * 24
# No step that the mirrors are behind: copies are due at the latest when their cost is a twentieth of the steps between.
MANY = 40


def resize(attempt: Attempt, count: int) -> None:
    """Whoever can stays, in its process."""
    before = set(attempt.service.pids())
    attempt.scale(count)
    now = set(attempt.service.pids())
    assert len(now & before) == min(len(now), len(before)), "a survivor changed its process"


def kill_one(attempt: Attempt) -> None:
    """The others go on by themselves, and another one joins them."""
    recoveries, count = len(attempt.service.events("recovered")), len(attempt.service.pids())
    *survivors, victim = attempt.service.pids()
    os.kill(victim, signal.SIGKILL)
    attempt.service.wait(lambda: len(attempt.service.events("recovered")) > recoveries, what="a recovery")
    attempt.wait_size(count)
    assert set(survivors) <= set(attempt.service.pids()), "a survivor changed its process"
    assert attempt.service.events("worker_lost")[-1].payload["pid"] == victim


@pytest.mark.parametrize("engine", ["zero", "fsdp"])
def test_resizes_and_kills_keep_processes_steps_and_the_curve(bench: Bench, engine: str) -> None:
    spec = bench.spec(engine=engine, stage=3, steps=STEPS)
    with bench.attempt(spec, workers=1) as attempt:
        attempt.wait_step(3)
        for count in (2, 4, 3):
            resize(attempt, count)
        for _ in range(2):
            attempt.wait_step(attempt.service.last.step + 10)
            kill_one(attempt)
        resize(attempt, 1)
        bench.hurry()
        attempt.ends("succeeded")
    resized = attempt.service.events("resized")
    sizes = [(event.payload["from"], event.payload["to"]) for event in resized]
    assert sizes == [(1, 2), (2, 4), (4, 3), (2, 3), (2, 3), (3, 1)]
    assert all(event.payload["redone_steps"] == 0 and event.payload["pause_s"] < 5 for event in resized)
    if engine == "zero":
        # Of master and two moments in fp32: half to the second worker, then a quarter from each of the two.
        state_bytes = NUMEL * 12
        moved = [event.payload["moved_bytes"] / state_bytes for event in resized[:2]]
        assert moved == pytest.approx([1 / 2, 1 / 2], rel=0.02)
    for recovered in attempt.service.events("recovered"):
        assert (recovered.payload["workers"], recovered.payload["from"]) == (2, "survivors")
        assert recovered.payload["redone_steps"] <= MANY
        assert recovered.payload["pause_s"] < 5
    curve, reference = attempt.service.curve(), undisturbed(spec, bench.folder / "cache")
    assert largest_difference(curve, {step: reference[step] for step in range(1, 51)}) < 1e-5
    assert largest_difference(curve, reference) < 1e-3
