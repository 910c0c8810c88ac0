"""Planned resizes: in the same processes, at an agreed boundary, with nothing redone and nothing lost."""

from __future__ import annotations

import pytest

from tests.elastic.cluster import Bench
from tests.elastic.reference import largest_difference, undisturbed
from tests.elastic.specs import paced

# Real processes on a machine that others may use as well.
pytestmark = pytest.mark.timeout(900)

STEPS = 360


@pytest.mark.parametrize("stage", [0, 3])
def test_resizes_keep_processes_steps_and_the_curve(bench: Bench, stage: int) -> None:
    spec = paced(stage=stage, steps=STEPS)
    with bench.attempt(spec, workers=1) as attempt:
        attempt.wait_step(3)
        seen = set(attempt.service.pids())
        for count in (2, 4, 3, 1):
            attempt.scale(count)
            now = set(attempt.service.pids())
            assert len(now & seen) == min(len(now), len(seen)), "a survivor changed its process"
            seen = now
        attempt.ends("succeeded")
    resized = attempt.service.events("resized")
    assert [(e.payload["from"], e.payload["to"]) for e in resized] == [(1, 2), (2, 4), (4, 3), (3, 1)]
    assert all(e.payload["redone_steps"] == 0 and e.payload["pause_s"] < 5 for e in resized)
    curve = attempt.service.curve()
    reference = undisturbed(spec, bench.folder / "cache")
    assert largest_difference(curve, {step: reference[step] for step in range(1, 51)}) < 1e-5
    assert largest_difference(curve, reference) < 1e-3


def test_a_middle_joiner_receives_a_third_of_the_state(bench: Bench) -> None:
    with bench.attempt(paced(stage=2, steps=4000), workers=2) as attempt:
        attempt.wait_step(1)
        attempt.scale(3)
        attempt.service.wait(lambda: attempt.service.events("resized"), what="a resize")
        event = attempt.service.events("resized")[0]
    numel = 64 * 24 + 3 * 24 * 24 + 2 * 24
    assert event.payload["moved_bytes"] == pytest.approx(numel * 12 / 3, rel=0.02)
