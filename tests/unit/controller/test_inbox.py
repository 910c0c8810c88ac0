"""What is sorted where: samples of a former generation count, its news and its progress do not."""

from __future__ import annotations

from datetime import UTC, datetime

from workers.controller.inbox import sort
from workers.worker.messages import Crashed, Points, Saved, Stopped


def test_points_of_a_former_generation_are_kept_under_its_number_and_move_no_step() -> None:
    points = Points(generation=1, step=7, at=datetime.now(UTC), values={"loss": 2.0}, rank=None)
    found = sort([("w1", points), ("w1", Stopped(generation=1, step=7))], generation=2)
    assert [(s.name, s.generation, s.step, s.value) for s in found.samples] == [("loss", 1, 7, 2.0)]
    assert (found.step, found.news) == (-1, [])


def test_a_crash_and_a_published_checkpoint_are_news_whatever_came_after() -> None:
    crash = Crashed(generation=1, step=7, cause="user", reason="no label")
    saved = Saved(generation=1, step=5, uri="u/step-00000005", size_bytes=1, files=2, duration_s=0.1)
    found = sort([("w1", saved), ("w2", crash), ("w2", Stopped(generation=1, step=7))], generation=2)
    assert found.news == [("w1", saved), ("w2", crash)]
