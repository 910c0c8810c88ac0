"""The line to the service, without a socket: what is posted, what happens when nothing answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from service.domain.spec import JobSpec
from service.domain.wire import Brief, Fact, Heartbeat, Orders, Outcome
from workers.controller.transport import Refused, Superseded
from workers.controller.uplink import REFUSED_S, RETRY_LIMIT_S, Standing, Uplink


class FakeTransport:
    """Applies facts by the wire's rules."""

    def __init__(self) -> None:
        self.beats: list[Heartbeat] = []
        self.applied = 0
        self.workers = 2
        self.failure: Exception | None = None
        self.failures_left = 1_000_000
        self.refuses: Callable[[Heartbeat], int] = lambda beat: 0

    @property
    def facts(self) -> list[Fact]:
        return [fact for beat in self.beats for fact in beat.facts]

    def post(self, heartbeat: Heartbeat) -> Orders:
        if self.failure is not None and self.failures_left > 0:
            self.failures_left -= 1
            raise self.failure
        if status := self.refuses(heartbeat):
            raise Refused(status, "no")
        self.beats.append(heartbeat)
        self.applied = max(self.applied, heartbeat.facts_from + len(heartbeat.facts))
        return Orders(acknowledged=self.applied, workers=self.workers)


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport()


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def uplink(transport: FakeTransport, clock: list[float]) -> Uplink:
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
    return Uplink(brief, transport, clock=lambda: clock[0])


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


def test_the_newest_orders_are_kept(uplink: Uplink, transport: FakeTransport) -> None:
    transport.workers = 3
    uplink._exchange()
    assert uplink.orders.workers == 3


@pytest.mark.parametrize("status", [413, 422])
def test_a_fact_that_the_service_never_takes_costs_itself_alone(
    uplink: Uplink, transport: FakeTransport, status: int
) -> None:
    transport.refuses = lambda beat: (
        status if any(fact.event and fact.event.kind == "bad" for fact in beat.facts) else 0
    )
    for kind in ("a", "b", "bad", "c", "d"):
        uplink.event(kind)
    for _ in range(3):
        uplink._exchange()
    kinds = [fact.event.kind for fact in transport.facts if fact.event]
    assert kinds == ["a", "b", "fact_dropped", "c", "d"]
    assert f"status {status}" in transport.facts[2].event.payload["message"]  # type: ignore[union-attr]
    assert not uplink.superseded


def test_a_service_that_does_not_know_the_attempt_is_believed_after_a_while(
    uplink: Uplink, transport: FakeTransport, clock: list[float]
) -> None:
    transport.refuses = lambda beat: 401
    uplink._exchange()
    clock[0] += REFUSED_S / 2
    transport.refuses = lambda beat: 0
    uplink._exchange()
    transport.refuses = lambda beat: 401
    uplink._exchange()
    clock[0] += REFUSED_S - 1
    uplink._exchange()
    assert not uplink.superseded, "an answer in between begins the wait anew"
    clock[0] += 1
    uplink._exchange()
    assert uplink.superseded


def test_tries_become_rarer_while_nothing_answers(uplink: Uplink, transport: FakeTransport) -> None:
    transport.failure = ConnectionError("503")
    waits = []
    for _ in range(6):
        uplink._exchange()
        waits.append(uplink._retry_s)
    assert waits == sorted(waits)
    assert waits[0] < waits[-1] == RETRY_LIMIT_S
    transport.failure = None
    uplink._exchange()
    assert uplink._retry_s == 0


def test_an_exception_that_nobody_foresaw_does_not_end_the_line(uplink: Uplink, transport: FakeTransport) -> None:
    transport.failure = RuntimeError("a defect")
    transport.failures_left = 1
    uplink.event("a")
    uplink.start()
    assert uplink.end(Outcome(result="succeeded"), within_s=20)
    assert [fact.event.kind for fact in transport.facts if fact.event] == ["a"]


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
