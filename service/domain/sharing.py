"""One look at all jobs and the cluster: what each job is given from now on, and what those who wait are told. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType

from service.domain.allocation import NO_QUOTAS, Crowd, Demand, Quotas, allocate, demand_of, grant, why_waiting
from service.domain.cluster import ClusterFacts
from service.domain.job import DRIVEN, Intent, Job, JobState
from service.domain.reach import Reach
from service.domain.reach import looked_at as reached
from service.domain.standing import Standing, looked_at

WANTS_WORKERS = DRIVEN | {JobState.QUEUED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """wanting: the jobs that workers are shared out to. granted: of each of them. reasons: why who waits does.
    standings and reach are what the next look goes on from."""

    wanting: tuple[Job, ...] = ()
    granted: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    reasons: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    standings: Mapping[str, Standing] = field(default_factory=lambda: MappingProxyType({}))
    reach: Reach = field(default_factory=Reach)


def share_out(
    before: Sharing,
    jobs: Sequence[Job],
    facts: ClusterFacts,
    *,
    quotas: Quotas = NO_QUOTAS,
    patience_s: float,
    now: datetime,
) -> Sharing:
    """`jobs`: all that are open, deleted ones too: they hold their slots until their process is gone."""
    kind, wanting = facts.slot_kind, tuple(job for job in jobs if wants_workers(job))
    standings = {job.id: looked_at(before.standings.get(job.id, Standing()), job, now=now) for job in wanting}
    demands = [demand_of(job, slot_kind=kind, standing=standings[job.id], now=now) for job in wanting]
    others = Crowd.of([job for job in jobs if job.id not in standings], slot_kind=kind)
    given = sum(each.granted * each.slots_each for each in demands)
    reach = reached(before.reach, facts, granted=given, patience_s=patience_s, now=now)
    slots = reach.usable(facts, now=now)
    left = {key: quota - others.by_key.get(key, 0) for key, quota in quotas.items()}
    target = allocate(demands, slots=slots, quotas=quotas)
    granted = grant(demands, target, slots=slots, held_by_others=others.held, quotas=left)
    waiting = [(job, demand) for job, demand in zip(wanting, demands, strict=True) if _waits(job, granted)]
    after = [replace(job, granted=granted.get(job.id, job.granted)) for job in jobs]
    reasons = _reasons(waiting, Crowd.of(after, slot_kind=kind), slots, facts, quotas, reach.note(facts, now=now))
    return Sharing(wanting=wanting, granted=granted, reasons=reasons, standings=standings, reach=reach)


def wants_workers(job: Job) -> bool:
    return job.state in WANTS_WORKERS and job.intent is Intent.RUN


def _waits(job: Job, granted: Mapping[str, int]) -> bool:
    return not granted[job.id] and job.state in (JobState.QUEUED, JobState.RECOVERING)


def _reasons(
    waiting: Sequence[tuple[Job, Demand]], crowd: Crowd, slots: int, facts: ClusterFacts, quotas: Quotas, note: str
) -> dict[str, str]:
    found = {}
    for job, demand in waiting:
        why = why_waiting(demand, crowd, slots=slots, kind=facts.slot_kind, quotas=quotas)
        found[job.id] = f"{why}; {note}" if note else why
    return found
