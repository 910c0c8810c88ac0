"""Nodes and slots, who uses them, who waits and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from service.domain.allocation import Crowd, held_slots
from service.domain.attempt import Attempt
from service.domain.cluster import ClusterFacts, ClusterView, PendingJob, QuotaUse, SlotUse, slots_per_worker
from service.domain.explanation import Explanation, explain
from service.domain.job import DRIVEN, Job, JobState
from service.domain.key import quotas_of
from service.ports import Capacity, Clock, Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    database: Database
    capacity: Capacity
    clock: Clock

    async def view(self) -> ClusterView:
        """Raises ClusterUnavailable."""
        facts = await self.capacity.facts()
        async with self.database.read() as work:
            jobs, keys, attempts = await work.jobs.open(), await work.keys.all(), await work.attempts.open()
        crowd = Crowd.of(jobs, slot_kind=facts.slot_kind)
        drivers = {attempt.id: attempt for attempt in attempts}
        used = tuple(use for job in jobs if (use := _use(job, facts, drivers)).slots)
        return ClusterView(
            nodes=facts.nodes,
            slot_kind=facts.slot_kind,
            slots=facts.slots,
            slots_free=max(0, facts.slots - sum(use.slots for use in used)),
            max_slots=facts.max_slots,
            used=used,
            pending=tuple(_pending(job, facts) for job in jobs if job.state is JobState.QUEUED),
            quotas=tuple(
                QuotaUse(key_id=key.id, name=key.name, slots=crowd.by_key.get(key.id, 0), quota_slots=key.quota_slots)
                for key in keys
                if key.quota_slots is not None and key.revoked_at is None
            ),
        )

    async def explain(self, job_id: str) -> Explanation:
        """Why the job has the workers it has. Raises JobNotFound, ClusterUnavailable."""
        facts = await self.capacity.facts()
        async with self.database.read() as work:
            job = await work.jobs.get(job_id)
            jobs, quotas = await work.jobs.open(), quotas_of(await work.keys.all())
        return explain(job, jobs, facts, quotas=quotas, now=self.clock.now())


def _use(job: Job, facts: ClusterFacts, drivers: Mapping[str, Attempt]) -> SlotUse:
    driver = drivers.get(job.attempt_id or "") if job.state in DRIVEN else None
    return SlotUse(
        job_id=job.id,
        name=job.name,
        slots=held_slots(job, slot_kind=facts.slot_kind),
        workers=max(job.granted, job.progress.workers, job.progress.told),
        members=() if driver is None else driver.members,
    )


def _pending(job: Job, facts: ClusterFacts) -> PendingJob:
    each = slots_per_worker(job.spec.resources, slot_kind=facts.slot_kind)
    return PendingJob(job_id=job.id, name=job.name, slots=job.bounds.min * each, reason=job.reason)
