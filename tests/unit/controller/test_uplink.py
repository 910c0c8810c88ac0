"""The line to the service, without a socket: what is posted, what happens when nothing answers."""

from __future__ import annotations

import pytest

from service.domain.spec import JobSpec
from service.domain.wire import Brief, Heartbeat, Orders, Outcome
from workers.controller.uplink import Standing, Superseded, Uplink


class FakeTransport:
    """Applies facts by the wire's rules."""

    def __init__(self) -> None:
        self.beats: list[Heartbeat] = []
        self.applied = 0
        self.workers = 2
        self.failure: Exception | None = None

    def post(self, heartbeat: Heartbeat) -> Orders:
        if self.failure is not None:
            raise self.failure
        self.beats.append(heartbeat)
        self.applied = max(self.applied, heartbeat.facts_from + len(heartbeat.facts))
        return Orders(acknowledged=self.applied, workers=self.workers)


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport()


@pytest.fixture
def uplink(transport: FakeTransport) -> Uplink:
    brief = Brief(
        job_id="j",
        attempt_id="a",
        attempt_number=1,
        spec=JobSpec.model_validate({"model": "gpt-tiny"}),
        workers=2,
        checkpoint_uri="",
        cache_folder="",
        log_folder="",
        ray_address="",
        namespace="",
        orphan_timeout_s=60,
    )
    return Uplink(brief, transport)


def test_facts_wait_while_nothing_answers_and_arrive_in_order(uplink: Uplink, transport: FakeTransport) -> None:
    transport.failure = ConnectionError("refused")
    for kind in ("a", "b"):
        uplink.event(kind)
        uplink._exchange()
    transport.failure = None
    uplink.event("c")
    uplink._exchange()
    uplink._exchange()
    kinds = [fact.event.kind for beat in transport.beats for fact in beat.facts if fact.event]
    assert kinds == ["a", "b", "c"]
    assert [beat.facts_from for beat in transport.beats] == [0, 1]


def test_the_outcome_leaves_with_the_last_fact_and_not_before(uplink: Uplink, transport: FakeTransport) -> None:
    transport.failure = ConnectionError("refused")
    uplink.event("early")
    uplink._exchange()
    uplink.event("late")
    uplink.end(Outcome(result="succeeded"), within_s=0)
    transport.failure = None
    uplink._exchange()
    assert [beat.outcome is not None for beat in transport.beats] == [False, True]
    assert transport.beats[-1].phase == "ended"
    assert uplink.end(Outcome(result="succeeded"), within_s=0)


def test_orders_are_kept_and_a_change_is_told(uplink: Uplink, transport: FakeTransport) -> None:
    uplink._exchange()
    assert not uplink.changed.is_set()
    transport.workers = 3
    uplink._exchange()
    assert uplink.changed.is_set()
    assert uplink.orders.workers == 3


def test_superseded_is_final(uplink: Uplink, transport: FakeTransport) -> None:
    transport.failure = Superseded("409")
    uplink._exchange()
    assert uplink.superseded
    assert uplink.end(Outcome(result="superseded"), within_s=0)


def test_a_step_alone_does_not_hurry_a_heartbeat(uplink: Uplink) -> None:
    uplink.show(Standing(phase="running", step=1, generation=1))
    uplink._urgent.clear()
    uplink.show(Standing(phase="running", step=2, generation=1))
    assert not uplink._urgent.is_set()
    uplink.show(Standing(phase="resizing", step=2, generation=1))
    assert uplink._urgent.is_set()
