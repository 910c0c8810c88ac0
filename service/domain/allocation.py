"""How many workers each job should have now, over all jobs and the cluster. Pure, and stable under no change.

`allocate` says where things should go; `grant` says how far one may go at once: a slot is given only when it is free,
so that the workers that live never exceed the slots there are, also while others still leave.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heapify, heappop, heappush
from types import MappingProxyType

from service.domain.cluster import SlotKind, slots_per_worker
from service.domain.job import Job
from service.domain.standing import Standing
from service.domain.text import counted

# A resize pauses training for seconds: a worker moves to another job only where it adds so much more,
KEEP = 1.25
# and who has lost workers to others gets more only after so long.
COOL_DOWN_S = 20.0
NONE = Standing()
# API key -> slots that its jobs may hold together; a key that is not in it has no quota.
Quotas = Mapping[str, int]
NO_QUOTAS: Quotas = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A job that wants workers. granted: what it was given before; present: workers that it has, leaving ones included,
    or may have by its latest orders. order: smaller came earlier. points: what waiting adds to the priority. scaling:
    how its throughput grows with workers (`standing.py`). shrunk_for_s: since others took workers from it. key_id:
    whose quota it counts against."""

    job_id: str
    priority: int
    order: str
    min: int
    max: int
    slots_each: int
    granted: int = 0
    present: int = 0
    points: int = 0
    scaling: float = 1.0
    shrunk_for_s: float = math.inf
    key_id: str | None = None

    @property
    def standing(self) -> int:
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


@dataclass(slots=True)
class _Room:
    """Slots that are still to be given: of all, and within each quota."""

    slots: int
    quotas: dict[str, int]

    def workers(self, demand: Demand) -> int:
        """As many workers of this job have room."""
        left = self.slots
        if demand.key_id in self.quotas:
            left = min(left, self.quotas[demand.key_id])
        return max(0, left // demand.slots_each)

    def take(self, demand: Demand, slots: int) -> None:
        self.slots -= slots
        if demand.key_id in self.quotas:
            self.quotas[demand.key_id] -= slots


def allocate(demands: Sequence[Demand], *, slots: int, quotas: Quotas = NO_QUOTAS) -> dict[str, int]:
    """Workers per job. Minimum first, by rank, whole or not at all; then the surplus, one worker at a time to whom it
    speeds up most: equal shares until it is known how jobs scale. A lower job is so squeezed to its minimum before any
    is stopped. The jobs of a key never get more than its quota."""
    room, target = _Room(slots, dict(quotas)), {demand.job_id: 0 for demand in demands}
    order = ranked(demands)
    for demand in order:
        if demand.min <= room.workers(demand):
            target[demand.job_id] = demand.min
            room.take(demand, demand.min * demand.slots_each)
    # The gain of a job falls with each worker, so the largest of all is always at the top; the rank decides a tie.
    gains = [(-demand.gain(demand.min), rank, demand) for rank, demand in enumerate(order) if target[demand.job_id]]
    heapify(gains)
    while gains and room.slots > 0:
        _, rank, chosen = heappop(gains)
        if target[chosen.job_id] < chosen.reach and room.workers(chosen):
            target[chosen.job_id] += 1
            room.take(chosen, chosen.slots_each)
            heappush(gains, (-chosen.gain(target[chosen.job_id]), rank, chosen))
    return target


def grant(
    demands: Sequence[Demand],
    target: Mapping[str, int],
    *,
    slots: int,
    held_by_others: int = 0,
    quotas: Quotas = NO_QUOTAS,
) -> dict[str, int]:
    """What each job may have at once. Shrinking needs nothing; growing waits for slots that are seen free; a job that
    starts waits until its minimum is free. held_by_others: slots of jobs that want nothing more but still leave, which
    `quotas` are without."""
    room = _Room(slots - held_by_others, dict(quotas))
    for demand in demands:
        room.take(demand, demand.held)
    granted: dict[str, int] = {}
    for demand in ranked(demands):
        wanted = target[demand.job_id]
        within = max(demand.granted, min(wanted, demand.present))
        more = max(0, min(wanted - within, room.workers(demand)))
        if wanted > within and within + more < demand.min:
            more = 0
        granted[demand.job_id] = min(wanted, within + more)
        room.take(demand, more * demand.slots_each)
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
        present=max(job.progress.workers, job.progress.told),
        points=0 if now is None else standing.points(now=now),
        scaling=standing.scaling,
        shrunk_for_s=math.inf if now is None else standing.shrunk_for_s(now=now),
        key_id=job.key_id,
    )


def held_slots(job: Job, *, slot_kind: SlotKind) -> int:
    """Slots that are not free because of the job, whatever its state."""
    return demand_of(job, slot_kind=slot_kind).held


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Who holds slots, counted once for all who wait. `by_key`: API key -> slots that its jobs hold."""

    held: int
    holders: int
    by_key: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, jobs: Sequence[Job], *, slot_kind: SlotKind) -> Crowd:
        holding = [(job, slots) for job in jobs if (slots := held_slots(job, slot_kind=slot_kind))]
        by_key: dict[str, int] = {}
        for job, slots in holding:
            if job.key_id is not None:
                by_key[job.key_id] = by_key.get(job.key_id, 0) + slots
        return cls(held=sum(slots for _, slots in holding), holders=len(holding), by_key=MappingProxyType(by_key))


def why_waiting(demand: Demand, crowd: Crowd, *, slots: int, kind: SlotKind, quotas: Quotas = NO_QUOTAS) -> str:
    """A sentence with numbers for a job that was given nothing."""
    need = demand.min * demand.slots_each
    needed = counted(need, f"{kind} slot")
    if (quota := quotas.get(demand.key_id or "")) is not None:
        within = crowd.by_key.get(demand.key_id or "", 0) - demand.held
        if need + within > quota:
            return (
                f"Waiting for {needed} within the quota of its key: its other jobs hold {within} of the "
                f"{quota} slots that they may hold together"
            )
    if slots == 0:
        return f"Waiting for {needed}: the cluster offers none now"
    if need > slots:
        fewer = slots // demand.slots_each
        advice = f"scale the job to a minimum of {fewer}" if fewer else f"ask for fewer {kind}s per worker"
        return (
            f"Needs {needed} for its minimum of {counted(demand.min, 'worker')}, but the cluster has {slots} in all; "
            f"{advice} or add slots"
        )
    used, holders = crowd.held - demand.held, crowd.holders - (demand.held > 0)
    free = max(0, slots - used)
    if free >= need:
        return (
            f"Waiting for its turn: of {slots} {kind} slots {free} are free, and jobs that come before it wait for them"
        )
    return (
        f"Waiting for {needed}: {free} of {slots} are free, "
        f"{used} are held by {counted(holders, 'other job')} (this job's priority is {demand.priority}"
        f"{f', and waiting has added {demand.points}' if demand.points else ''})"
    )
