"""The one order in which every rank launches the collectives of a pass.

A pass (forward, or backward) is a static list of launches; a hook only says how far along the list this rank may go:
what a rank runs changes when a collective starts, and never which one comes next. Gathers and reductions are one list,
so no rank waits for a collective while another waits for an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice, pairwise


class Action(Enum):
    GATHER = auto()
    REDUCE = auto()


@dataclass(frozen=True, slots=True)
class Launch:
    action: Action
    unit: int


def forward_launches(order: Sequence[int]) -> tuple[Launch, ...]:
    return tuple(Launch(Action.GATHER, unit) for unit in order)


def backward_launches(
    order: Sequence[int], *, gathers: bool, reduces: bool, late: Collection[int] = ()
) -> tuple[Launch, ...]:
    """The root (first of `order`) is gathered first and reduced last; the others go in reverse.

    A unit is gathered when the last but one before it is reduced: two units are whole at a time. Units of `late` are
    used more than once: their gradients are all there at the end only.
    """
    root, *others = order
    others.reverse()
    launches = [Launch(Action.GATHER, root)]
    for position, unit in enumerate(others):
        if position >= 2 and others[position - 2] not in late:
            launches.append(Launch(Action.REDUCE, others[position - 2]))
        launches.append(Launch(Action.GATHER, unit))
    in_time = [unit for unit in others[-2:] if unit not in late]
    launches += [Launch(Action.REDUCE, unit) for unit in [*in_time, *(u for u in others if u in late), root]]
    wanted = {Action.GATHER: gathers, Action.REDUCE: reduces}
    return tuple(launch for launch in launches if wanted[launch.action])


class Launches:
    """A cursor on a pass's list. `start` launches one entry; `ready` says whether a unit's gradients are all there."""

    def __init__(
        self, launches: Sequence[Launch], *, start: Callable[[Launch], None], ready: Callable[[int], bool]
    ) -> None:
        self._launches, self._start, self._ready = launches, start, ready
        self._cursor, self._allowed = 0, -1
        gathers = [at for at, launch in enumerate(launches) if launch.action is Action.GATHER]
        self._gather_at = {launches[at].unit: at for at in gathers}
        self._next_gather = dict(pairwise(gathers))

    def reach_gather(self, unit: int) -> None:
        """Launch everything up to the gather of `unit`, also reductions of units that still miss gradients here."""
        at = self._gather_at[unit]
        while self._cursor <= at:
            self.pop()

    def allow_next_gather(self, unit: int) -> None:
        """`unit` is in use: the gather after its own may start."""
        at = self._gather_at[unit]
        self._allowed = max(self._allowed, self._next_gather.get(at, at))
        self.advance()

    def advance(self) -> None:
        """Launch what may start without waiting for this rank's own gradients."""
        while self._cursor < len(self._launches):
            launch = self._launches[self._cursor]
            if launch.action is Action.GATHER and self._cursor > self._allowed:
                return
            if launch.action is Action.REDUCE and not self._ready(launch.unit):
                return
            self.pop()

    def next_gather(self) -> int | None:
        """The unit that will be gathered next."""
        rest = islice(self._launches, self._cursor, None)
        return next((launch.unit for launch in rest if launch.action is Action.GATHER), None)

    def pop(self) -> Launch | None:
        """Launch the next entry, whatever it is; None at the end of the list."""
        if self._cursor == len(self._launches):
            return None
        launch = self._launches[self._cursor]
        self._cursor += 1
        self._start(launch)
        return launch


class Habits:
    """What the passes have shown of the model: the order in which units are used, and which are used again.

    Every rank must hold the same, so it changes only by what the ranks agreed in a step's reduction.
    """

    def __init__(self, num_units: int) -> None:
        self.order = list(range(num_units))
        self.again: set[int] = set()
        self._learnt = False
        self._seen: list[int] = []
        self._seen_again: set[int] = set()

    def use(self, unit: int) -> None:
        if not self._learnt and unit not in self._seen:
            self._seen.append(unit)

    def use_again(self, unit: int) -> None:
        self._seen_again.add(unit)

    def votes(self, *, rank: int) -> list[float]:
        """This rank's part of the reduction: who was used again and, until it is known, the order on rank 0."""
        votes = [float(unit in self._seen_again) for unit in range(len(self.order))]
        if not self._learnt:
            places = {unit: place for place, unit in enumerate(self._seen, start=1)} if rank == 0 else {}
            votes += [float(places.get(unit, 0)) for unit in range(len(self.order))]
        return votes

    def adopt(self, sums: Sequence[float]) -> None:
        count = len(self.order)
        self.again |= {unit for unit in range(count) if sums[unit]}
        if self._learnt:
            return
        places = sums[count:]
        self._learnt = any(places)
        # What rank 0 did not use comes last; the root stays first.
        self.order.sort(key=lambda unit: (unit != 0, places[unit] or count + 1, unit))
