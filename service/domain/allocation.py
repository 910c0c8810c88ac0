"""How many workers each job should have now, over all jobs and the cluster. Pure, and stable under no change.

`allocate` says where things should go; `grant` says how far one may go at once: a slot is given only when it is free,
so that the workers that live never exceed the slots there are, also while others still leave.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import heapify, heappop, heappush

from service.domain.cluster import SlotKind, slots_per_worker
from service.domain.job import Job
from service.domain.standing import Standing

# A resize pauses training for seconds: a worker moves to another job only where it adds so much more,
KEEP = 1.25
# and who has lost workers to others gets more only after so long.
COOL_DOWN_S = 20.0
NONE = Standing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A job that wants workers. granted: what it was given before; present: workers seen, leaving ones included.
    order: smaller came earlier. points: what waiting adds to the priority. scaling: how its throughput grows with
    workers (`standing.py`). shrunk_for_s: since others took workers from it."""

    job_id: str
    priority: int
    order: str
    min: int
    max: int
    slots_each: int
    granted: int = 0
    present: int = 0
    points: float = 0.0
    scaling: float = 1.0
    shrunk_for_s: float = math.inf

    @property
    def standing(self) -> float:
        return self.priority + self.points

    @property
    def reach(self) -> int:
        """As many as it may be given now: who has just shrunk does not grow again at once."""
        return self.max if self.shrunk_for_s >= COOL_DOWN_S else max(self.min, min(self.max, self.granted))

    def gain(self, workers: int) -> float:
        """What one more than `workers` adds to the logarithm of its throughput; more where it has that one already."""
        gain = self.scaling * math.log((workers + 1) / workers)
        return gain * KEEP if workers < self.granted else gain

    @property
    def held(self) -> int:
        """Slots that are not free because of it."""
        return max(self.granted, self.present) * self.slots_each


def ranked(demands: Sequence[Demand]) -> list[Demand]:
    """Larger priority, waiting counted in, first; among equals who has workers keeps them, then who came first."""
    return sorted(demands, key=lambda demand: (-demand.standing, demand.granted == 0, demand.order))


def allocate(demands: Sequence[Demand], *, slots: int) -> dict[str, int]:
    """Workers per job. Minimum first, by rank, whole or not at all; then the surplus, one worker at a time to whom it
    speeds up most: equal shares until it is known how jobs scale. A lower job is so squeezed to its minimum before any
    is stopped."""
    left, target = slots, {demand.job_id: 0 for demand in demands}
    order = ranked(demands)
    for demand in order:
        if demand.min * demand.slots_each <= left:
            target[demand.job_id] = demand.min
            left -= demand.min * demand.slots_each
    # The gain of a job falls with each worker, so the largest of all is always at the top; the rank decides a tie.
    gains = [(-demand.gain(demand.min), rank, demand) for rank, demand in enumerate(order) if target[demand.job_id]]
    heapify(gains)
    while gains:
        _, rank, chosen = heappop(gains)
        if target[chosen.job_id] < chosen.reach and chosen.slots_each <= left:
            target[chosen.job_id] += 1
            left -= chosen.slots_each
            heappush(gains, (-chosen.gain(target[chosen.job_id]), rank, chosen))
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


def demand_of(job: Job, *, slot_kind: SlotKind, standing: Standing = NONE, now: datetime | None = None) -> Demand:
    """Without `now` its past does not count."""
    return Demand(
        job_id=job.id,
        priority=job.spec.priority,
        order=job.id,
        min=job.bounds.min,
        max=job.bounds.max,
        slots_each=slots_per_worker(job.spec.resources, slot_kind=slot_kind),
        granted=job.granted,
        present=job.progress.workers,
        points=0.0 if now is None else standing.points(now=now),
        scaling=standing.scaling,
        shrunk_for_s=math.inf if now is None else standing.shrunk_for_s(now=now),
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
        fewer = slots // demand.slots_each
        advice = f"scale the job to a minimum of {fewer}" if fewer else f"ask for fewer {kind}s per worker"
        return (
            f"Needs {need} {kind} slots for its minimum of {demand.min} workers, but the cluster has {slots} in all; "
            f"{advice} or add slots"
        )
    used = held_by_others + sum(other.held for other in demands if other.job_id != demand.job_id)
    ahead = sum(1 for other in demands if other.held and other.job_id != demand.job_id)
    return (
        f"Waiting for {need} {kind} slots: {max(0, slots - used)} of {slots} are free, "
        f"{used} are held by {ahead} other jobs (its priority is {demand.priority}"
        f"{f', and waiting has added {demand.points:.0f}' if demand.points >= 1 else ''})"
    )
