"""At which boundaries a group saves, when one save may still be in flight somewhere.

A pure function of what the group agreed, so that every rank comes to the same answer: a due save waits until no rank is
busy, and one that comes due meanwhile is merged with the one that waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Turn(Enum):
    """What the group does at one boundary."""

    NONE = auto()
    # Take the snapshot and train on.
    BEHIND = auto()
    # Settle the save in flight, then save before anything else happens: the job ends, leaves or pauses here.
    AT_ONCE = auto()


@dataclass(slots=True, kw_only=True)
class Turns:
    """Of one generation; `every_steps` as in the spec."""

    every_steps: int
    waiting: bool = False

    def at(self, step: int, *, busy: bool, wished: bool, final: bool) -> Turn:
        """`busy`: a save is in flight on some rank; `wished`: somebody asked; `final`: nothing follows here."""
        due = self.waiting or wished or step % self.every_steps == 0
        if final:
            self.waiting = False
            return Turn.AT_ONCE
        self.waiting = due and busy
        return Turn.BEHIND if due and not busy else Turn.NONE
