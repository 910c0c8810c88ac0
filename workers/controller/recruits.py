"""Keeps as many living workers as are desired: asks for more at once, with pauses where they keep dying young."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from workers.controller.sizing import Crew
from workers.worker.messages import Ready

log = logging.getLogger(__name__)

# A recruit that died is replaced after this long, doubled each time up to the limit.
RETRY_S = 1.0
RETRY_LIMIT_S = 60.0


class Recruit(Protocol):
    id: str
    ready: Ready | None


class Workforce(Protocol):
    """The part of the worker group that recruiting needs."""

    def __iter__(self) -> Iterator[Recruit]: ...

    def spawn(self) -> str: ...

    def end(self, worker: str) -> None: ...


class Recruits:
    """Workers that live and are in no generation yet."""

    def __init__(self, group: Workforce, *, clock: Callable[[], float]) -> None:
        self._group = group
        self._clock = clock
        self._not_before = clock()
        self._delay_s = RETRY_S
        self._warm_since: float | None = None

    def crew(self, members: Collection[str]) -> Crew:
        others = [hand for hand in self._group if hand.id not in members]
        return Crew(
            members=tuple(members),
            ready=tuple(hand.id for hand in others if hand.ready is not None),
            starting=sum(hand.ready is None for hand in others),
        )

    def fill(self, desired: int, members: Collection[str]) -> None:
        """Ask for who is missing; let those go who are too many and in no generation, the youngest first."""
        others = [hand for hand in self._group if hand.id not in members]
        excess = len(members) + len(others) - desired
        for hand in sorted(others, key=lambda hand: hand.ready is not None)[: max(0, excess)]:
            self._group.end(hand.id)
        if excess < 0 and self._clock() >= self._not_before:
            for _ in range(-excess):
                self._group.spawn()
        self._watch(members)

    def waited_s(self) -> float:
        """Since somebody is warm and waits."""
        return 0.0 if self._warm_since is None else self._clock() - self._warm_since

    def failed(self, worker: str, reason: str) -> float:
        """One of them died or crashed: the next is asked for a little later each time. Returns how much."""
        log.warning("recruit %s is gone: %s; the next in %.0f s", worker, reason, self._delay_s)
        waits_s, self._delay_s = self._delay_s, min(RETRY_LIMIT_S, self._delay_s * 2)
        self._not_before = self._clock() + waits_s
        return waits_s

    def joined(self) -> None:
        """A generation stands: patience and pauses begin anew."""
        self._delay_s = RETRY_S
        self._warm_since = None

    def _watch(self, members: Collection[str]) -> None:
        if not self.crew(members).ready:
            self._warm_since = None
        elif self._warm_since is None:
            self._warm_since = self._clock()
