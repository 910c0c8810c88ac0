"""How many workers each job should have now, over all jobs and the cluster. Pure, and stable under no change.

`allocate` says where things should go; `grant` says how far one may go at once: a slot is given only when it is free,
so that the workers that live never exceed the slots there are, also while others still leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.domain.cluster import SlotKind, slots_per_worker
from service.domain.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A job that wants workers. granted: what it was given before; present: workers seen, leaving ones included.
    order: smaller came earlier."""

    job_id: str
    priority: int
    order: str
    min: int
    max: int
    slots_each: int
    granted: int = 0
    present: int = 0

    @property
    def held(self) -> int:
        """Slots that are not free because of it."""
        return max(self.granted, self.present) * self.slots_each


def ranked(demands: Sequence[Demand]) -> list[Demand]:
    """Larger priority first; among equals who has workers keeps them, then who came first."""
    return sorted(demands, key=lambda demand: (-demand.priority, demand.granted == 0, demand.order))


def allocate(demands: Sequence[Demand], *, slots: int) -> dict[str, int]:
    """Workers per job. Minimum first, by rank, whole or not at all; then the surplus, one worker at a time to who has
    the fewest. A lower job is so squeezed to its minimum before any is stopped."""
    left, target = slots, {demand.job_id: 0 for demand in demands}
    order = ranked(demands)
    for demand in order:
        if demand.min * demand.slots_each <= left:
            target[demand.job_id] = demand.min
            left -= demand.min * demand.slots_each
    growing = [demand for demand in order if target[demand.job_id]]
    while growing:
        growing = [d for d in growing if target[d.job_id] < d.max and d.slots_each <= left]
        if growing:
            poorest = min(growing, key=lambda demand: target[demand.job_id])
            target[poorest.job_id] += 1
            left -= poorest.slots_each
    return target


def grant(
    demands: Sequence[Demand], target: Mapping[str, int], *, slots: int, held_by_others: int = 0
) -> dict[str, int]:
    """What each job may have at once. Shrinking needs nothing; growing waits for slots that are seen free; a job that
    starts waits until its minimum is free. held_by_others: slots of jobs that want nothing more but still leave."""
    free = slots - held_by_others - sum(demand.held for demand in demands)
    granted: dict[str, int] = {}
    for demand in ranked(demands):
        wanted = target[demand.job_id]
        within = max(demand.granted, min(wanted, demand.present))
        more = max(0, min(wanted - within, free // demand.slots_each))
        if wanted > within and within + more < demand.min:
            more = 0
        granted[demand.job_id] = min(wanted, within + more)
        free -= more * demand.slots_each
    return granted


def demand_of(job: Job, *, slot_kind: SlotKind) -> Demand:
    return Demand(
        job_id=job.id,
        priority=job.spec.priority,
        order=job.id,
        min=job.bounds.min,
        max=job.bounds.max,
        slots_each=slots_per_worker(job.spec.resources, slot_kind=slot_kind),
        granted=job.granted,
        present=job.progress.workers,
    )


def held_slots(job: Job, *, slot_kind: SlotKind) -> int:
    """Slots that are not free because of the job, whatever its state."""
    return demand_of(job, slot_kind=slot_kind).held


def why_waiting(demand: Demand, demands: Sequence[Demand], *, slots: int, kind: SlotKind, held_by_others: int) -> str:
    """A sentence with numbers for a job that was given nothing."""
    need = demand.min * demand.slots_each
    if slots == 0:
        return f"Waiting for {need} {kind} slots: the cluster offers none now"
    if need > slots:
        return (
            f"Needs {need} {kind} slots for its minimum of {demand.min} workers, but the cluster has {slots} in all; "
            f"scale the job to a minimum of {slots // demand.slots_each or 1} or add slots"
        )
    used = held_by_others + sum(other.held for other in demands if other.job_id != demand.job_id)
    ahead = sum(1 for other in ranked(demands) if other.held and other.job_id != demand.job_id)
    return (
        f"Waiting for {need} {kind} slots: {max(0, slots - used)} of {slots} are free, "
        f"{used} are held by {ahead} other jobs (its priority is {demand.priority})"
    )
