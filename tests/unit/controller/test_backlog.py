"""Facts leave in order, are repeated until acknowledged, and are thinned before any event is lost."""

from __future__ import annotations

from datetime import UTC, datetime

from service.domain.wire import EventReport, Fact, LogLine, Sample
from workers.controller.backlog import FACT_POINTS, MESSAGE_BYTES, Backlog

AT = datetime(2026, 1, 1, tzinfo=UTC)


def samples(*steps: int) -> tuple[Sample, ...]:
    return tuple(Sample(name="loss", step=step, generation=1, value=1.0, at=AT) for step in steps)


def event(kind: str) -> Fact:
    return Fact(event=EventReport(kind=kind, at=AT))


def steps(backlog: Backlog) -> list[int]:
    """Everything that would leave, acknowledged on the way."""
    found = []
    while message := backlog.message():
        found += [sample.step for fact in message for sample in fact.samples or ()]
        backlog.acknowledge(backlog.first + len(message))
    return found


def test_what_left_is_repeated_unchanged_until_it_is_acknowledged() -> None:
    backlog = Backlog()
    backlog.add(event("resized"))
    first = backlog.message()
    backlog.add(event("recovered"))
    assert (backlog.first, backlog.message()) == (0, first)
    backlog.acknowledge(1)
    assert backlog.first == 1
    assert [fact.event.kind for fact in backlog.message() if fact.event] == ["recovered"]


def test_a_part_that_was_applied_is_not_sent_again() -> None:
    backlog = Backlog()
    for kind in "abc":
        backlog.add(event(kind))
    backlog.message()
    backlog.acknowledge(2)
    assert [fact.event.kind for fact in backlog.message() if fact.event] == ["c"]


def test_samples_share_facts_but_never_pass_an_event() -> None:
    backlog = Backlog()
    backlog.add_samples(samples(1))
    backlog.add_samples(samples(2))
    backlog.add(event("resized"))
    backlog.add_samples(samples(3))
    message = backlog.message()
    assert [len(fact.samples) if fact.samples else fact.event.kind for fact in message] == [2, "resized", 1]


def test_a_message_has_a_size_limit_in_bytes_whatever_the_facts_are() -> None:
    backlog = Backlog()
    for first in range(0, 20 * FACT_POINTS, FACT_POINTS):
        backlog.add_samples(samples(*range(first, first + FACT_POINTS)))
    backlog.add_logs(tuple(LogLine(at=AT, text="é" * 2000) for _ in range(500)))
    lines, points = 0, 0
    while message := backlog.message():
        assert sum(len(fact.model_dump_json(exclude_none=True).encode()) for fact in message) <= MESSAGE_BYTES
        lines += sum(len(fact.logs or ()) for fact in message)
        points += sum(len(fact.samples or ()) for fact in message)
        backlog.acknowledge(backlog.first + len(message))
    assert (points, lines) == (20 * FACT_POINTS, 500)


def test_a_smaller_message_is_the_beginning_of_the_one_that_was_refused() -> None:
    backlog = Backlog()
    for kind in "abc":
        backlog.add(event(kind))
    whole = backlog.message()
    assert backlog.message(most=1) == whole[:1]
    backlog.acknowledge(1)
    assert (backlog.first, backlog.message()) == (1, whole[1:])


def test_a_long_absence_thins_samples_evenly_and_keeps_every_event() -> None:
    backlog = Backlog(max_points=400)
    for step in range(1, 3001):
        backlog.add_samples(samples(step))
        if step % 1000 == 0:
            backlog.add(event(f"at {step}"))
    assert len(backlog) < 20
    kept = []
    kinds = []
    while message := backlog.message():
        kept += [sample.step for fact in message for sample in fact.samples or ()]
        kinds += [fact.event.kind for fact in message if fact.event]
        backlog.acknowledge(backlog.first + len(message))
    assert kinds == ["at 1000", "at 2000", "at 3000"]
    assert 50 < len(kept) <= 1400
    assert kept == sorted(kept)
    assert kept[-1] == 3000
    assert len([step for step in kept if step <= 1000]) >= 10, "old steps are still on the chart"


def test_samples_of_one_step_go_or_stay_together() -> None:
    backlog = Backlog(max_points=1500)
    pair = [Sample(name=name, step=0, generation=1, value=1.0, at=AT) for name in ("loss", "lr")]
    for step in range(3000):
        backlog.add_samples(tuple(sample.model_copy(update={"step": step}) for sample in pair))
    kept = steps(backlog)
    assert len(kept) == 2 * len(set(kept))


def test_too_many_log_lines_are_left_to_the_files() -> None:
    backlog = Backlog(max_log_lines=10)
    for number in range(100):
        backlog.add_logs((LogLine(at=AT, text=str(number)),))
    assert sum(len(fact.logs or ()) for fact in backlog.message()) == 10
