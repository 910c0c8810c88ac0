"""Who is to leave soon, by when and why: workers on nodes that are drained, and those that were told to end.

A notice is kept, not asked again: no machine that announced its end stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
# A group stops, moves and stands again well within this, however long one step takes of it.
LEAVE_BEFORE_S = 15.0
TIMES_A_STEP = 3.0


class Drained(Protocol):
    """The part of the worker group that notices need."""

    def __contains__(self, worker: str) -> bool: ...

    def draining(self) -> Mapping[str, float | None]:
        """worker -> seconds until its node may be gone; None where no time is said."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """`by`: on the controller's clock, None where no time was said."""

    worker: str
    reason: str
    by: float | None


class Notices:
    """Belongs to the controller's one thread."""

    def __init__(self, group: Drained, *, clock: Callable[[], float]) -> None:
        self._group = group
        self._clock = clock
        self._looked_at = clock() - LOOK_EVERY_S
        self._known: dict[str, Departure] = {}

    def look(self) -> list[Departure]:
        """Those whose nodes are drained, each once."""
        now = self._clock()
        if now - self._looked_at < LOOK_EVERY_S:
            return []
        self._looked_at = now
        self._known = {worker: departure for worker, departure in self._known.items() if worker in self._group}
        found = [self.add(worker, "its node is drained", left_s) for worker, left_s in self._group.draining().items()]
        return [departure for departure in found if departure is not None]

    def add(self, worker: str, reason: str, left_s: float | None) -> Departure | None:
        """None where it is known already: the first notice counts."""
        if worker in self._known or worker not in self._group:
            return None
        by = None if left_s is None else self._clock() + left_s
        departure = self._known[worker] = Departure(worker=worker, reason=reason, by=by)
        log.warning("worker %s is to leave: %s, %s s left", worker, reason, left_s)
        return departure

    def departing(self, members: Collection[str]) -> tuple[str, ...]:
        return tuple(member for member in members if member in self._known)

    def hurry(self, members: Collection[str], *, step_s: float) -> bool:
        """Whether one of them cannot wait for who replaces it: its time is short, or nobody knows how short."""
        margin_s = max(LEAVE_BEFORE_S, TIMES_A_STEP * step_s)
        times = [self._known[member].by for member in self.departing(members)]
        return any(by is None or by - self._clock() < margin_s for by in times)
