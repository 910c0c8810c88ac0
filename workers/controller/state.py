"""What a controller is doing, and how the service calls it.

| state | waits for | then |
|---|---|---|
| GATHERING | enough warm workers | FORMING |
| FORMING | every member's Joined | RUNNING |
| RUNNING | an order, a new size, a loss, the end | STOPPING, COLLECTING, the end |
| STOPPING | every member's Stopped, at one agreed step | FORMING, SAVING |
| COLLECTING | what each survivor still holds | GATHERING |
| SAVING | rank 0's Saved | the end |
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Literal

from service.domain.wire import Phase
from workers.controller.generation import Cause


class State(Enum):
    GATHERING = auto()
    FORMING = auto()
    RUNNING = auto()
    STOPPING = auto()
    COLLECTING = auto()
    SAVING = auto()


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
