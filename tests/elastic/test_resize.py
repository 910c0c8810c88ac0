"""Planned resizes: in the same processes, at an agreed boundary, with nothing redone and nothing lost."""

from __future__ import annotations

import pytest

from tests.elastic.cluster import Bench
from tests.elastic.reference import largest_difference, undisturbed

# Real processes on a machine that others may use as well.
pytestmark = pytest.mark.timeout(900)

STEPS = 400
# Of the paced model: a tied table and three layers, two of them with a bias.
NUMEL = 64 * 24 + 3 * 24 * 24 + 2 * 24


@pytest.mark.parametrize(("engine", "stage"), [("zero", 0), ("zero", 3), ("fsdp", 3)])
def test_resizes_keep_processes_steps_and_the_curve(bench: Bench, engine: str, stage: int) -> None:
    spec = bench.spec(engine=engine, stage=stage, steps=STEPS)
    with bench.attempt(spec, workers=1) as attempt:
        attempt.wait_step(3)
        seen = set(attempt.service.pids())
        for count in (2, 4, 3, 1):
            attempt.scale(count)
            now = set(attempt.service.pids())
            assert len(now & seen) == min(len(now), len(seen)), "a survivor changed its process"
            seen = now
        bench.hurry()
        attempt.ends("succeeded")
    resized = attempt.service.events("resized")
    assert [(e.payload["from"], e.payload["to"]) for e in resized] == [(1, 2), (2, 4), (4, 3), (3, 1)]
    assert all(e.payload["redone_steps"] == 0 and e.payload["pause_s"] < 5 for e in resized)
    if (engine, stage) == ("zero", 3):
        # Of master and two moments in fp32: half to the second worker, then a quarter from each of the two.
        state_bytes = NUMEL * 12
        moved = [event.payload["moved_bytes"] / state_bytes for event in resized[:2]]
        assert moved == pytest.approx([1 / 2, 1 / 2], rel=0.02)
    curve = attempt.service.curve()
    reference = undisturbed(spec, bench.folder / "cache")
    assert largest_difference(curve, {step: reference[step] for step in range(1, 51)}) < 1e-5
    assert largest_difference(curve, reference) < 1e-3
