"""How and why an attempt ends, as values. Pure.

An attempt that is to end saves what its workers hold first; one whose workers hold nothing says what that costs.
"""

from __future__ import annotations

from typing import Literal

from service.domain.wire import Orders, Outcome
from workers.controller.sizing import Crew
from workers.controller.state import Purpose

# Nobody trains for so long because workers are missing: what is held is saved, and others may have the slots.
MISSING_S = 1800.0
# Generations lost one after another without a new step, before the attempt gives up.
LOSSES = 10
# Whoever tells a controller to end waits for it, and kills it if it takes too long: so long it may save.
TOLD_S = 25.0

SUCCEEDED = Outcome(result="succeeded")
CANCELLED = Outcome(result="cancelled")
SUPERSEDED = Outcome(result="superseded", reason="another attempt has taken over")
TOLD_TO_END = Outcome(result="paused", reason="the controller was told to end, and had no time to save")


def exit_wanted(orders: Orders, *, given_up: str | None, told: bool) -> Purpose | None:
    """What the group is to be saved and let go for, where it is. told: to end, from outside."""
    if orders.action == "pause":
        return "pause"
    return "leave" if orders.action == "leave" or told or given_up is not None else None


def too_few_stay(crew: Crew, *, minimum: int) -> str | None:
    """Why those who depart, and have to now, leave too few behind to go on with."""
    if len(crew.staying) + len(crew.ready) >= minimum:
        return None
    leaving, stay = len(crew.departing), len(crew.staying)
    return f"{leaving} of {len(crew.members)} workers had to leave, and {stay} that stay are fewer than {minimum}"


def hopeless(*, missing_s: float, note: str | None, failures: str | None) -> str | None:
    """Why to give up waiting for workers, where nobody trains."""
    return f"gave up {note}" if missing_s > MISSING_S else failures


def nothing_to_save(*, given_up: str | None, furthest: int) -> Outcome:
    """Nobody holds anything: the end, at once."""
    if given_up is not None:
        return Outcome(result="failed", cause="machine", reason=given_up)
    if furthest <= 0:
        return Outcome(result="paused", reason="before its workers had begun to train")
    lost = f"what was trained up to step {furthest} since the newest checkpoint was lost with its workers"
    return Outcome(result="paused", reason=f"{lost}; it goes on from that checkpoint")


def saved(*, step: int, given_up: str | None) -> Outcome:
    return Outcome(result="paused", reason=given_up or f"checkpoint of step {step} saved")


def not_saved(reason: str) -> Outcome:
    return Outcome(result="failed", cause="machine", reason=reason)


def crashed(cause: Literal["user", "system"], reason: str) -> Outcome:
    return Outcome(result="failed", cause=cause, reason=reason)


def too_many_losses(losses: int, *, step: int) -> Outcome | None:
    if losses <= LOSSES:
        return None
    reason = f"{losses} generations in a row were lost at step {step} without a new step"
    return Outcome(result="failed", cause="machine", reason=reason)
