"""Why a job has the workers it has, in every state."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from service.domain.cluster import ClusterFacts, Node
from service.domain.explanation import explain
from service.domain.job import Intent, JobState, Progress
from service.domain.spec import WorkerBounds
from tests.contract.values import NOW, SPEC, job

FACTS = ClusterFacts(nodes=(Node(id="n", address="a", alive=True, slots=4),), slot_kind="gpu", max_slots=4, address="a")
QUEUED = {
    "state": JobState.QUEUED,
    "granted": 0,
    "progress": Progress(),
    "bounds": WorkerBounds(min=2, max=4),
    "spec": SPEC.model_copy(update={"priority": 60}),
    "retry_at": None,
}


def test_who_waits_is_told_what_it_needs_and_who_is_ahead() -> None:
    waiting, holder = job(1, **QUEUED), job(2, granted=3, progress=Progress(workers=3))
    first = job(3, **{**QUEUED, "spec": SPEC.model_copy(update={"priority": 90})})
    found = explain(waiting, [waiting, holder, first], FACTS, now=NOW)
    assert (found.needs_slots, found.slots, found.slots_free) == (2, 4, 1)
    assert [(each.job_id, each.slots) for each in found.ahead] == [(first.id, 0), (holder.id, 3)]
    assert "It needs 2 gpu slots to start (2 workers of 1)" in found.sentences
    assert found.sentences[-1].startswith("Lower jobs hold slots: they shrink to their minimum first")


def test_a_try_that_is_due_later_is_told() -> None:
    waiting = job(1, **{**QUEUED, "retry_at": NOW + timedelta(seconds=7), "failures": 3})
    found = explain(waiting, [waiting], FACTS, now=NOW)
    assert "The next try is due in 7 s, after 3 lost attempts" in found.sentences


def test_every_state_has_its_sentence() -> None:
    for state in JobState:
        each = job(1, state=state, intent=Intent.RUN)
        assert explain(each, [each], FACTS, now=NOW).sentences[0] == each.reason
    paused = job(1, **{**QUEUED, "state": JobState.PAUSED, "intent": Intent.PAUSE})
    assert "`elastane resume" in explain(paused, [paused], FACTS, now=NOW).sentences[-1]


def test_what_the_autoscaler_may_bring_is_told_and_counted() -> None:
    waiting = job(1, **{**QUEUED, "bounds": WorkerBounds(min=6, max=8)})
    assert "It cannot start" in explain(waiting, [waiting], FACTS, now=NOW).sentences[-1]
    scaled = replace(FACTS, max_slots=8)
    assert explain(waiting, [waiting], scaled, now=NOW).sentences[-1] == (
        "Its autoscaler may bring the cluster to 8 gpu slots"
    )
