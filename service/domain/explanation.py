"""Why a job has the workers it has: sentences with numbers, and the numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from service.domain.allocation import NO_QUOTAS, Demand, Quotas, demand_of, ranked
from service.domain.cluster import ClusterFacts
from service.domain.job import DRIVEN, Intent, Job, JobState
from service.domain.text import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """A job that holds slots or comes first. `slots`: those it holds now."""

    job_id: str
    name: str | None
    priority: int
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """needs_slots: for the minimum. ahead: who holds slots or has a higher rank, first the first."""

    job_id: str
    state: JobState
    reason: str
    sentences: tuple[str, ...]
    slot_kind: str
    needs_slots: int
    slots: int
    slots_free: int
    ahead: tuple[Ahead, ...]


def explain(
    job: Job, jobs: Sequence[Job], facts: ClusterFacts, *, quotas: Quotas = NO_QUOTAS, now: datetime
) -> Explanation:
    """`jobs`: all that are open, the job too where it is."""
    demands = {each.id: demand_of(each, slot_kind=facts.slot_kind) for each in jobs}
    own = demands.get(job.id) or demand_of(job, slot_kind=facts.slot_kind)
    ahead = _ahead(own, demands, {each.id: each for each in jobs}) if job.state in _NEEDS else ()
    free = max(0, facts.slots - sum(demand.held for demand in demands.values()))
    return Explanation(
        job_id=job.id,
        state=job.state,
        reason=job.reason,
        sentences=(*_sentences(job, own, ahead, facts, free, now), *_quota(own, demands.values(), quotas)),
        slot_kind=facts.slot_kind,
        needs_slots=own.min * own.slots_each,
        slots=facts.slots,
        slots_free=free,
        ahead=ahead,
    )


def _quota(own: Demand, demands: Iterable[Demand], quotas: Quotas) -> Iterator[str]:
    if own.key_id is not None and own.key_id in quotas:
        held = sum(each.held for each in demands if each.key_id == own.key_id)
        yield f"The jobs of its key hold {held} of the {quotas[own.key_id]} slots that they may hold together"


_NEEDS = DRIVEN | {JobState.QUEUED}


def _ahead(own: Demand, demands: dict[str, Demand], jobs: dict[str, Job]) -> tuple[Ahead, ...]:
    """Those that stop want nothing any more, but hold their slots until they have left."""
    order = ranked([own, *(each for key, each in demands.items() if key != own.job_id)])
    place = order.index(own)
    return tuple(
        Ahead(job_id=each.job_id, name=jobs[each.job_id].name, priority=each.priority, slots=each.held)
        for at, each in enumerate(order)
        if each is not own and (each.held or (at < place and jobs[each.job_id].state in _NEEDS))
    )


def _sentences(
    job: Job, own: Demand, ahead: tuple[Ahead, ...], facts: ClusterFacts, free: int, now: datetime
) -> Iterator[str]:
    if job.reason:
        yield job.reason
    if job.state is JobState.PAUSED:
        yield f"It was paused at its user's wish; `elastane resume {job.id}` goes on from step {job.progress.step}"
    if job.state not in _NEEDS or job.intent is not Intent.RUN:
        return
    if job.retry_at is not None and job.retry_at > now:
        yield f"The next try is due in {(job.retry_at - now).total_seconds():.0f} s, after {job.failures} lost attempts"
    kind = facts.slot_kind
    if not job.granted:
        needed = counted(own.min * own.slots_each, f"{kind} slot")
        yield f"It needs {needed} to start ({counted(own.min, 'worker')} of {own.slots_each})"
    else:
        yield f"It is given {job.granted} of at most {counted(own.max, 'worker')}; {job.progress.workers} are there"
    others = f"; {counted(len(ahead), 'job')} beside it, on slots or first in line" if ahead else ""
    yield f"{free} of {facts.slots} {kind} slots are free{others}"
    if facts.max_slots > facts.slots:
        yield f"Its autoscaler may bring the cluster to {facts.max_slots} {kind} slots"
    if not job.granted and own.min * own.slots_each > max(facts.slots, facts.max_slots):
        yield f"It cannot start on this cluster as it is: `elastane scale {job.id} N` lowers its minimum"
    elif not job.granted and any(each.priority < own.priority and each.slots for each in ahead):
        yield "Lower jobs hold slots: they shrink to their minimum first, and are paused only if that is not enough"
