"""Reports are kept until they were fetched, and thinned when nobody fetches."""

from __future__ import annotations

from datetime import UTC, datetime

from workers.worker.messages import Points, Stopped
from workers.worker.outbox import Outbox


def point(step: int) -> Points:
    return Points(generation=1, step=step, at=datetime(2026, 1, 1, tzinfo=UTC), values={"loss": 1.0})


def test_a_lost_answer_is_repeated() -> None:
    outbox = Outbox()
    outbox.put(Stopped(generation=1, step=3))
    first = outbox.fetch(after=-1, wait_s=0)
    assert outbox.fetch(after=-1, wait_s=0) == first
    assert outbox.fetch(after=first[-1][0], wait_s=0) == []


def test_numbers_go_on_after_what_was_forgotten() -> None:
    outbox = Outbox()
    for step in range(3):
        outbox.put(Stopped(generation=1, step=step))
    assert [number for number, _ in outbox.fetch(after=0, wait_s=0)] == [1, 2]
    outbox.put(Stopped(generation=1, step=9))
    assert [number for number, _ in outbox.fetch(after=2, wait_s=0)] == [3]


def test_too_many_points_become_sparse_and_news_stays() -> None:
    outbox = Outbox(max_reports=100)
    outbox.put(Stopped(generation=1, step=0))
    for step in range(1, 2001):
        outbox.put(point(step))
    reports = [report for _, report in outbox.fetch(after=-1, wait_s=0)]
    assert isinstance(reports[0], Stopped)
    steps = [report.step for report in reports if isinstance(report, Points)]
    assert len(steps) <= 100
    assert steps == sorted(steps)
    assert steps[0] <= 256


def test_silence_is_counted_from_the_last_call() -> None:
    now = [0.0]
    outbox = Outbox(clock=lambda: now[0])
    now[0] = 5.0
    assert outbox.silence_s() == 5.0
    outbox.fetch(after=-1, wait_s=0)
    now[0] = 7.0
    assert outbox.silence_s() == 2.0


def test_a_new_controller_hears_again_the_points_that_the_former_one_may_have_taken_along() -> None:
    outbox = Outbox()
    outbox.put(Stopped(generation=1, step=0))
    for step in range(1, 4):
        outbox.put(point(step))
    fetched = outbox.fetch(after=-1, wait_s=0)
    outbox.fetch(after=fetched[2][0], wait_s=0)
    outbox.retell()
    again = [report for _, report in outbox.fetch(after=-1, wait_s=0)]
    assert [report.step for report in again if isinstance(report, Points)] == [1, 2, 3]
    assert not any(isinstance(report, Stopped) for report in again)
