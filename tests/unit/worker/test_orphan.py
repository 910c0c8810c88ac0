"""When a worker without a controller leaves, whatever its training thread does."""

from __future__ import annotations

import queue

import pytest

from workers.worker.orphan import FIRST_WORD_S, GRACE_S, OrphanWatch


def watch(*, silent_s: float, heard: bool, left: queue.Queue[str] | None = None, limit_s: float = 600.0) -> OrphanWatch:
    return OrphanWatch(
        silence_s=lambda: silent_s,
        was_heard=lambda: heard,
        limit_s=limit_s,
        leave=(left or queue.Queue()).put,
        every_s=0.001,
    )


@pytest.mark.parametrize(
    ("silent_s", "heard", "leaves"),
    [
        (FIRST_WORD_S - 1, False, False),
        (FIRST_WORD_S + 1, False, True),
        (FIRST_WORD_S + 1, True, False),
        (600 + GRACE_S - 1, True, False),
        (600 + GRACE_S + 1, True, True),
    ],
)
def test_a_first_word_is_awaited_less_long_than_the_next(silent_s: float, heard: bool, leaves: bool) -> None:
    assert (watch(silent_s=silent_s, heard=heard).complaint() is not None) == leaves


def test_the_thread_leaves_once_and_ends() -> None:
    left: queue.Queue[str] = queue.Queue()
    of_nobody = watch(silent_s=2, heard=False, left=left, limit_s=1)
    of_nobody.start()
    assert left.get(timeout=20) == "before any controller said a first word"
    of_nobody.end()
    assert left.empty()


def test_the_thread_ends_with_its_worker() -> None:
    left: queue.Queue[str] = queue.Queue()
    adopted = watch(silent_s=0, heard=True, left=left)
    adopted.start()
    adopted.end()
    assert not adopted._thread.is_alive()
    assert left.empty()
