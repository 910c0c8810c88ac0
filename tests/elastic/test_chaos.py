"""Random faults and resizes against real workers. A part of a minute here; `make soak` goes on for hours."""

from __future__ import annotations

import dataclasses

import pytest

from tests.elastic.chaos import Chaos
from tests.elastic.cluster import Bench
from tests.elastic.diary import Line
from tests.elastic.history import Change, History, broken_promises

# Real processes on a machine that others may use as well.
pytestmark = pytest.mark.timeout(900)

SEED = 2


def test_no_promise_is_broken_by_faults_and_resizes_at_random(bench: Bench) -> None:
    chaos = Chaos(bench, seed=SEED, faults=6, steps=200)
    history = chaos.run()
    assert chaos.done.total() >= 5, chaos.done
    assert broken_promises(history) == []


def two_generations(*, first: int = 3, groups: tuple[tuple[int, int], ...] = ((4, 2), (6, 2))) -> History:
    """Two steps by one worker, then `first` and so on to step 4 by another generation; `groups`: of step 3."""
    lines = [
        line
        for generation, step in [(1, 1), (1, 2), *((2, step) for step in range(first, 5))]
        for line in (
            Line(
                did="computed",
                pid=7,
                generation=generation,
                step=step,
                at=0.0,
                groups=groups if step == 3 else ((2 * step - 2, 2),),
            ),
            Line(did="stood", pid=7, generation=generation, step=step, at=0.0),
        )
    ]
    curve = dict.fromkeys(range(1, 5), 1.0)
    changes = [Change(generation=2, planned=True, redone=0)]
    return History(
        steps=4,
        batch_size=2,
        most=4,
        lines=lines,
        changes=changes,
        generations=[1, 2],
        sizes=[1, 2],
        curve=curve,
        reference=curve,
    )


def test_each_broken_promise_is_found_in_a_history() -> None:
    whole = two_generations(groups=((4, 2),))
    assert broken_promises(whole) == []
    broken = {
        "too many": two_generations(groups=((4, 2), (6, 2))),
        "missing": two_generations(groups=((4, 1),)),
        "never stood": dataclasses.replace(whole, steps=5),
        "steps back": two_generations(first=2, groups=((4, 2),)),
        "no loss": dataclasses.replace(whole, curve={1: 1.0}),
        "loss of step 2": dataclasses.replace(whole, curve={**whole.curve, 2: 1.1}),
        "older generation": dataclasses.replace(whole, generations=[2, 1]),
        "allowed": dataclasses.replace(whole, sizes=[5]),
        "left behind": dataclasses.replace(whole, left_behind=["process 7"]),
    }
    for words, history in broken.items():
        assert any(words in each for each in broken_promises(history)), words
