"""Keeps as many living workers as are desired: asks for more at once, with pauses where they keep dying young."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from service.domain.text import counted
from workers.controller.sizing import Crew
from workers.worker.messages import Ready

log = logging.getLogger(__name__)

# A recruit that died is replaced after this long, doubled each time up to the limit.
RETRY_S = 1.0
RETRY_LIMIT_S = 60.0
# So many rounds of recruits that died before they were of use: the next would die too.
FAILED_ROUNDS = 5
# Starting takes a while; a wait is worth a sentence after this long, and again in steps of as many seconds.
TELL_AFTER_S = 10.0


class Recruit(Protocol):
    """`heard`: its process stands and answers."""

    id: str
    ready: Ready | None
    heard: bool


class Workforce(Protocol):
    """The part of the worker group that recruiting needs."""

    def __iter__(self) -> Iterator[Recruit]: ...

    def spawn(self) -> str: ...

    def end(self, worker: str) -> None: ...

    def obstacle(self) -> str:
        """Why a worker that was asked for is not placed yet."""
        ...


class Recruits:
    """Workers that live and are in no generation yet."""

    def __init__(self, group: Workforce, *, clock: Callable[[], float]) -> None:
        self._group = group
        self._clock = clock
        self._not_before = clock()
        self._delay_s = RETRY_S
        self._warm_since: float | None = None
        self._missing_since: float | None = None
        self._missing = 0
        self._noted: tuple[int, int, str] | None = None
        self._failed_rounds = 0
        self._last_failure = ""

    def crew(self, members: Collection[str]) -> Crew:
        others = [hand for hand in self._group if hand.id not in members]
        return Crew(
            members=tuple(members),
            ready=tuple(hand.id for hand in others if hand.ready is not None),
            starting=sum(hand.ready is None for hand in others),
        )

    def device_bytes(self) -> int | None:
        """Memory of the smallest accelerator under a worker that is warm; None where they compute on CPUs."""
        told = [hand.ready.device_bytes for hand in self._group if hand.ready is not None]
        return min((size for size in told if size is not None), default=None)

    def fill(self, desired: int, members: Collection[str]) -> None:
        """Ask for who is missing; let those go who are too many and in no generation, the youngest first."""
        others = [hand for hand in self._group if hand.id not in members]
        excess = len(members) + len(others) - desired
        for hand in sorted(others, key=lambda hand: hand.ready is not None)[: max(0, excess)]:
            self._group.end(hand.id)
        if excess < 0 and self._clock() >= self._not_before:
            for _ in range(-excess):
                self._group.spawn()
        self._watch(desired, members)

    def waited_s(self) -> float:
        """Since somebody is warm and waits."""
        return 0.0 if self._warm_since is None else self._clock() - self._warm_since

    @property
    def missing_s(self) -> float:
        """How long somebody who is wanted has not been there."""
        return 0.0 if self._missing_since is None else self._clock() - self._missing_since

    @property
    def hopeless(self) -> str | None:
        """Why nobody new can be hoped for, where that is so."""
        if self._failed_rounds < FAILED_ROUNDS:
            return None
        return f"{self._failed_rounds} tries to start a worker failed in a row, the last: {self._last_failure}"

    def note(self) -> str | None:
        """A sentence about who is missing, for how long and why; None where nobody is, or not for long."""
        tens_s = int(self.missing_s // TELL_AFTER_S * TELL_AFTER_S)
        if not tens_s:
            return None
        if self._noted is None or self._noted[:2] != (self._missing, tens_s):
            text = f"waiting for {counted(self._missing, 'more worker')} for {tens_s} s: {self._why()}"
            self._noted = (self._missing, tens_s, text)
        return self._noted[2]

    def failed(self, worker: str, reason: str) -> None:
        """One of them died or crashed: the next is asked for a little later each time. Those who die together count
        once."""
        self._last_failure = reason
        if self._clock() < self._not_before:
            return
        log.warning("recruit %s is gone: %s; the next in %.0f s", worker, reason, self._delay_s)
        self._failed_rounds += 1
        self._not_before, self._delay_s = self._clock() + self._delay_s, min(RETRY_LIMIT_S, self._delay_s * 2)

    def joined(self) -> None:
        """A generation stands: patience, pauses and the budget begin anew."""
        self._delay_s = RETRY_S
        self._warm_since = None
        self._failed_rounds = 0

    def _watch(self, desired: int, members: Collection[str]) -> None:
        crew = self.crew(members)
        if not crew.ready:
            self._warm_since = None
        elif self._warm_since is None:
            self._warm_since = self._clock()
        self._missing = desired - len(crew.members) - len(crew.ready)
        if self._missing <= 0:
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = self._clock()

    def _why(self) -> str:
        starting = [hand for hand in self._group if hand.ready is None]
        if self._last_failure and self._failed_rounds:
            return f"the last one could not start ({self._last_failure})"
        if any(not hand.heard for hand in starting):
            return self._group.obstacle()
        return "they load the program, the model and the data"
