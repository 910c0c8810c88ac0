"""When a group saves: every rank comes to the same answer, and a save in flight delays the next, never loses it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workers.checkpoint.turns import Turn, Turns


def test_a_due_boundary_is_saved_behind_training() -> None:
    turns = Turns(every_steps=10)
    assert [turns.at(step, busy=False, wished=False, final=False) for step in (9, 10, 11)] == [
        Turn.NONE,
        Turn.BEHIND,
        Turn.NONE,
    ]


def test_a_save_that_comes_due_while_one_is_in_flight_waits_for_its_end() -> None:
    turns = Turns(every_steps=10)
    answers = [turns.at(step, busy=step < 13, wished=False, final=False) for step in range(9, 16)]
    assert answers == [Turn.NONE] * 4 + [Turn.BEHIND] + [Turn.NONE] * 2


def test_those_that_come_due_meanwhile_are_merged_into_one() -> None:
    turns = Turns(every_steps=2)
    answers = [turns.at(step, busy=step < 9, wished=step == 5, final=False) for step in range(1, 10)]
    assert answers.count(Turn.BEHIND) == 1
    assert answers[-1] is Turn.BEHIND


def test_the_last_boundary_is_saved_at_once_whatever_is_in_flight() -> None:
    turns = Turns(every_steps=10)
    assert turns.at(7, busy=True, wished=False, final=True) is Turn.AT_ONCE
    assert turns.at(8, busy=False, wished=False, final=False) is Turn.NONE


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40), st.integers(1, 7))
def test_no_wish_is_lost_and_none_starts_while_busy(boundaries: list[tuple[bool, bool]], every_steps: int) -> None:
    turns = Turns(every_steps=every_steps)
    owed = False
    for step, (busy, wished) in enumerate(boundaries, start=1):
        owed = owed or wished or step % every_steps == 0
        answer = turns.at(step, busy=busy, wished=wished, final=False)
        assert answer is (Turn.BEHIND if owed and not busy else Turn.NONE)
        owed = owed and busy
    assert turns.waiting == owed
