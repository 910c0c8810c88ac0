"""What a heartbeat makes of a job."""

from __future__ import annotations

import pytest

from service.domain.observation import conclude, observe
from service.domain.wire import Heartbeat, Outcome, Phase
from tests.contract.values import NOW, attempt, job


@pytest.mark.parametrize("phase", ["starting", "ended"])
def test_an_attempt_that_never_trained_leaves_the_step_where_it_was(phase: Phase) -> None:
    """It is stopped again before it knows from which step it would go on."""
    outcome = Outcome(result="paused", reason="before its workers had begun to train") if phase == "ended" else None
    facts = {"job_id": job().id, "attempt_id": attempt().id, "phase": phase, "outcome": outcome, "at": NOW}
    beat = Heartbeat.model_validate({**facts, "step": 0, "generation": 0, "world_size": 0})
    second = attempt(generation_before=3, phase="starting")
    seen = observe(job(), second, beat, (), now=NOW).job
    assert seen.progress.step == job().progress.step == 12
    if outcome is not None:
        stopped = conclude(seen, outcome, now=NOW).job
        assert stopped.reason.startswith("Stopped at step 12 (before its workers had begun to train)")
