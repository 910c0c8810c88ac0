"""What a controller is doing: its states, the only moves between them, and how the service calls it.

| state | waits for | then |
|---|---|---|
| GATHERING | enough warm workers | FORMING |
| FORMING | every member's Joined | RUNNING |
| RUNNING | an order, a new size, a loss, the end | STOPPING, COLLECTING, the end |
| STOPPING | every member's Stopped, at one agreed step | FORMING, SAVING |
| COLLECTING | what each survivor still holds | GATHERING |
| SAVING | rank 0's Saved | the end |

A loss leads from everywhere to COLLECTING. The attempt may end in every state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Literal

from service.domain.wire import Phase
from workers.controller.generation import Cause

log = logging.getLogger(__name__)


class State(Enum):
    GATHERING = auto()
    FORMING = auto()
    RUNNING = auto()
    STOPPING = auto()
    COLLECTING = auto()
    SAVING = auto()


class Move(Enum):
    ADOPT = auto()
    FORM = auto()
    STAND = auto()
    STOP = auto()
    SAVE = auto()
    LOSE = auto()
    COUNT = auto()


S, M = State, Move

TRANSITIONS: Mapping[tuple[State, Move], State] = MappingProxyType(
    {
        (S.GATHERING, M.ADOPT): S.RUNNING,
        (S.GATHERING, M.FORM): S.FORMING,
        (S.GATHERING, M.LOSE): S.COLLECTING,
        (S.FORMING, M.STAND): S.RUNNING,
        (S.FORMING, M.LOSE): S.COLLECTING,
        (S.RUNNING, M.STOP): S.STOPPING,
        (S.RUNNING, M.LOSE): S.COLLECTING,
        (S.STOPPING, M.FORM): S.FORMING,
        (S.STOPPING, M.SAVE): S.SAVING,
        (S.STOPPING, M.LOSE): S.COLLECTING,
        (S.SAVING, M.LOSE): S.COLLECTING,
        (S.COLLECTING, M.COUNT): S.GATHERING,
    }
)


class IllegalMove(RuntimeError):
    """A defect of the controller: it wants what its state does not allow."""

    def __init__(self, state: State, move: Move) -> None:
        super().__init__(
            f"{move.name} in state {state.name}: the table of workers/controller/state.py has no such move"
        )


class Course:
    """The present state and since when; the table is the only way to another one."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = clock()
        self.state = State.GATHERING

    def move(self, move: Move) -> None:
        """Raises IllegalMove."""
        after = TRANSITIONS.get((self.state, move))
        if after is None:
            raise IllegalMove(self.state, move)
        log.info("%s -> %s", self.state.name, after.name)
        self.state, self._since = after, self._clock()

    @property
    def for_s(self) -> float:
        """How long in this state."""
        return self._clock() - self._since


# Why a running generation is asked to stop.
Purpose = Literal["resize", "pause", "leave"]

_FORMING: dict[Cause, Phase] = {"start": "starting", "resize": "resizing", "recover": "recovering"}


def phase(state: State, *, cause: Cause, purpose: Purpose) -> Phase:
    """cause: of the generation that forms or is to be formed."""
    if state is State.RUNNING:
        return "running"
    if state is State.COLLECTING:
        return "recovering"
    if state in (State.GATHERING, State.FORMING):
        return _FORMING[cause]
    return "resizing" if state is State.STOPPING and purpose == "resize" else "pausing"
