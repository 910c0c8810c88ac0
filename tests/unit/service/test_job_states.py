"""The transition table as a graph."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from service.domain.errors import IllegalTransition
from service.domain.job import DRIVEN, TERMINAL, TRANSITIONS, Job, JobState, Trigger, apply, mermaid
from service.domain.spec import JobSpec

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = JobSpec.model_validate({"model": "gpt-tiny"})


def job(state: JobState) -> Job:
    return Job(id="j", spec=SPEC, state=state, reason="", bounds=SPEC.workers, granted=2, created_at=NOW, since=NOW)


def reachable(start: JobState) -> set[JobState]:
    seen, waiting = {start}, [start]
    while waiting:
        here = waiting.pop()
        fresh = {target for (source, _), (target, _) in TRANSITIONS.items() if source is here} - seen
        seen |= fresh
        waiting += fresh
    return seen


def test_every_state_is_reached_from_queued() -> None:
    assert reachable(JobState.QUEUED) == set(JobState)


@pytest.mark.parametrize("state", sorted(set(JobState) - TERMINAL))
def test_every_live_state_can_end(state: JobState) -> None:
    assert reachable(state) & TERMINAL


@pytest.mark.parametrize("state", sorted(set(JobState) - TERMINAL - {JobState.CANCELLING}))
def test_cancel_is_legal_in_every_live_state(state: JobState) -> None:
    after, _ = apply(job(state), Trigger.CANCEL, now=NOW, reason="")
    assert after.state in (JobState.CANCELLING, JobState.CANCELLED)


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_terminal_is_final(state: JobState) -> None:
    for trigger in Trigger:
        with pytest.raises(IllegalTransition):
            apply(job(state), trigger, now=NOW, reason="")


@pytest.mark.parametrize("state", sorted(DRIVEN))
def test_a_job_with_an_attempt_can_survive_or_end_its_loss(state: JobState) -> None:
    """Cancelling and pausing jobs get where the user wanted them; all others recover."""
    losing = {JobState.CANCELLING: Trigger.FINISH_CANCEL, JobState.PAUSING: Trigger.FINISH_PAUSE}
    apply(job(state), losing.get(state, Trigger.LOSE), now=NOW, reason="")


def test_an_absent_pair_says_job_state_and_trigger_and_survives_pickling() -> None:
    with pytest.raises(IllegalTransition) as caught:
        apply(job(JobState.PAUSED), Trigger.SUCCEED, now=NOW, reason="")
    copied = pickle.loads(pickle.dumps(caught.value))
    why = "job j is paused; succeed is not possible in that state: try again when its state has changed"
    assert str(copied) == str(caught.value) == why
    assert copied.fields == {"job_id": "j", "state": JobState.PAUSED, "trigger": Trigger.SUCCEED}


def test_apply_gives_the_event_that_tells_the_change() -> None:
    before = replace(job(JobState.STARTING), attempt=2)
    after, event = apply(before, Trigger.START, now=NOW, reason="Training", payload={"workers": 2})
    assert (after.state, after.reason, after.started_at) == (JobState.RUNNING, "Training", NOW)
    assert (event.kind, event.message, event.attempt, event.payload) == ("started", "Training", 2, {"workers": 2})


def test_a_job_at_rest_has_no_workers_granted() -> None:
    for state, trigger in ((JobState.RUNNING, Trigger.REQUEUE), (JobState.RUNNING, Trigger.FAIL)):
        after, _ = apply(job(state), trigger, now=NOW, reason="")
        assert after.granted == 0


def test_the_time_in_a_state_counts_from_when_it_was_entered() -> None:
    later = NOW + timedelta(seconds=5)
    after, _ = apply(job(JobState.RECOVERING), Trigger.LOSE, now=later, reason="")
    assert after.since == NOW
    after, _ = apply(job(JobState.RECOVERING), Trigger.RUN, now=later, reason="")
    assert after.since == later


def test_the_diagram_shows_every_state_and_every_arrow() -> None:
    drawn = mermaid()
    for (source, trigger), (target, _) in TRANSITIONS.items():
        if source is not target:
            line = next(line for line in drawn.splitlines() if line.strip().startswith(f"{source} --> {target}:"))
            assert trigger in line
    assert drawn.splitlines()[0] == "stateDiagram-v2"
