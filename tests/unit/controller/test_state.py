"""The table of a controller's states, as a graph."""

from __future__ import annotations

import pytest

from workers.controller.state import TRANSITIONS, Course, IllegalMove, Move, State


def reached(start: State) -> set[State]:
    found, waiting = {start}, [start]
    while waiting:
        state = waiting.pop()
        after = {then for (before, _), then in TRANSITIONS.items() if before is state} - found
        found |= after
        waiting += after
    return found


@pytest.mark.parametrize("start", list(State))
def test_every_state_is_reached_from_every_other(start: State) -> None:
    assert reached(start) == set(State)


def test_a_loss_is_legal_wherever_a_generation_may_be() -> None:
    legal = {state for state, move in TRANSITIONS if move is Move.LOSE}
    assert legal == set(State) - {State.COLLECTING}


def test_what_the_table_lacks_raises_and_changes_nothing() -> None:
    now = [0.0]
    course = Course(clock=lambda: now[0])
    now[0] = 5.0
    with pytest.raises(IllegalMove, match="SAVE in state GATHERING"):
        course.move(Move.SAVE)
    assert (course.state, course.for_s) == (State.GATHERING, 5.0)
    course.move(Move.FORM)
    assert (course.state, course.for_s) == (State.FORMING, 0.0)
