"""After a change of what is there: go on with how many, wait, or give up. A decision; whoever asked acts."""

from __future__ import annotations

from dataclasses import dataclass

from service.domain.spec import WorkerBounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """Go on with so many workers now."""

    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Too few for the minimum: ask for what is missing, and look again."""

    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """The minimum did not come in time."""

    reason: str


def next_world(
    *, alive: int, wanted: int, bounds: WorkerBounds, waited_s: float, patience_s: float
) -> Resize | Wait | GiveUp:
    """alive: workers that can train now; wanted: what the allocation gives; waited_s: since there were too few.

    Training with fewer beats waiting for more, as long as the minimum is there.
    """
    usable = min(alive, wanted, bounds.max)
    if usable >= min(bounds.min, wanted):
        return Resize(workers=usable) if usable else Wait(missing=bounds.min)
    if waited_s >= patience_s:
        return GiveUp(reason=f"{alive} of at least {bounds.min} workers came within {patience_s:.0f} s")
    return Wait(missing=bounds.min - usable)
