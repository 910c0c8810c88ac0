"""How many workers, which, and in which order: decisions as values. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, islice

from workers.layout.interval import Interval
from workers.layout.layout import Layout, Owner, Piece
from workers.layout.reshard import order, plan

# How long joiners that are warm wait for those that are not, before the group grows without them.
PATIENCE_S = 10.0
# Of more ways to choose who leaves, only so many are compared.
CHOICES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Who is there: members of the running generation by rank, warm joiners, and how many are still starting.

    departing: members that were given notice.
    """

    members: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    starting: int = 0
    departing: tuple[str, ...] = ()

    @property
    def staying(self) -> tuple[str, ...]:
        return tuple(member for member in self.members if member not in self.departing)

    @property
    def size(self) -> int:
        return len(self.members) + len(self.ready) + self.starting


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """The next generation, by rank, and who hands over and leaves."""

    members: tuple[str, ...]
    leavers: tuple[str, ...] = ()


def next_members(crew: Crew, *, desired: int, waited_s: float, hurry: bool = False) -> Resize | None:
    """The next generation of a running one, or None where the present one is right or it is too early.

    waited_s: since the first joiner was warm. hurry: who departs cannot wait any longer.
    """
    if crew.departing:
        return replaced(crew, desired=desired, hurry=hurry)
    if desired < len(crew.members):
        return shrunk(crew.members, desired)
    wanted = min(desired, len(crew.members) + len(crew.ready))
    if wanted == len(crew.members):
        return None
    if wanted < desired and crew.starting and waited_s < PATIENCE_S:
        return None
    joiners = crew.ready[: wanted - len(crew.members)]
    return Resize(members=seated(crew.members, joiners))


def replaced(crew: Crew, *, desired: int, hurry: bool) -> Resize | None:
    """Without those who depart. As long as they have time, all who are desired must be there in their place."""
    staying = crew.staying
    wanted = min(desired, len(staying) + len(crew.ready))
    if wanted == 0 or (wanted < desired and not hurry):
        return None
    kept = staying if wanted >= len(staying) else shrunk(staying, wanted).members
    members = seated(kept, crew.ready[: wanted - len(kept)])
    return Resize(members=members, leavers=tuple(member for member in crew.members if member not in members))


def first_members(crew: Crew, *, desired: int, minimum: int, waited_s: float) -> tuple[str, ...] | None:
    """Who begins where no generation runs: all that are desired, or after some patience those that are there."""
    if len(crew.ready) >= desired:
        return crew.ready[:desired]
    if len(crew.ready) >= minimum and (waited_s >= PATIENCE_S or not crew.starting):
        return crew.ready
    return None


def regrouped(
    survivors: tuple[str, ...], givers: tuple[str, ...], crew: Crew, *, desired: int, minimum: int, waited_s: float
) -> Resize | None:
    """Who goes on where no generation runs: survivors by themselves where they are enough, else with as many joiners
    as that takes; without survivors, as at the beginning. None: it is too early.

    givers: leavers of a generation that broke, whose pieces the next one still needs. They hold state and are warm: as
    many as there is room for take the places of those who were lost.
    """
    room = max(0, desired - len(survivors))
    survivors, givers = (*survivors, *givers[:room]), givers[room:]
    if not survivors:
        first = first_members(crew, desired=desired, minimum=minimum, waited_s=waited_s)
        return None if first is None else Resize(members=first)
    lacking = max(0, minimum - len(survivors))
    if lacking > len(crew.ready):
        return None
    members = seated(survivors, crew.ready[:lacking]) if lacking else survivors
    return Resize(members=members, leavers=givers)


def seated(survivors: Sequence[str], joiners: Sequence[str]) -> tuple[str, ...]:
    """The rank order that keeps most of evenly cut state where it is: joiners between survivors, not behind them."""
    if not survivors:
        return tuple(joiners)
    before, after = len(survivors), len(survivors) + len(joiners)
    return order(
        have=_even(survivors, before * after),
        survivors=survivors,
        joiners=joiners,
        want=_even(range(after), before * after),
    )


def shrunk(members: Sequence[str], count: int) -> Resize:
    """Keep the `count` members whose staying moves least."""
    have = _even(members, len(members) * count)

    def moved(stayers: tuple[str, ...]) -> int:
        return plan(have, _even(stayers, len(members) * count), grain=1).moved_numel

    stayers = min(islice(combinations(members, count), CHOICES), key=moved)
    return Resize(members=stayers, leavers=tuple(member for member in members if member not in stayers))


def _even(owners: Sequence[Owner], numel: int) -> Layout[Owner]:
    size = numel // len(owners)
    return Layout({owner: (Piece("state", Interval(i * size, (i + 1) * size)),) for i, owner in enumerate(owners)})
