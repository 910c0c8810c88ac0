"""Writing a change of a job: row, events and what the streams tell about it, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.domain.event import Event
from service.domain.job import DRIVEN, Job
from service.domain.text import rfc3339
from service.ports import UnitOfWork

RECONCILE = "reconcile"  # bus topic: something for the reconciler to look at
NOTICES = "notices"  # bus topic: the outbox grew


def state_data(job: Job) -> dict[str, Any]:
    """The `data` of a `state` notice."""
    return {
        "id": job.id,
        "name": job.name,
        "state": str(job.state),
        "reason": job.reason,
        "step": job.progress.step,
        "steps": job.steps,
        "workers": {
            "desired": job.granted,
            "actual": job.progress.workers if job.state in DRIVEN else 0,
            "min": job.bounds.min,
            "max": job.bounds.max,
        },
        "generation": job.progress.generation,
        "attempt": job.attempt,
    }


def event_data(event: Event) -> dict[str, Any]:
    """The `data` of an `event` notice, and the shape of an event wherever it is shown."""
    return {
        "id": event.id,
        "job_id": event.job_id,
        "kind": event.kind,
        "at": rfc3339(event.at),
        "message": event.message,
        "attempt": event.attempt,
        "generation": event.generation,
        "step": event.step,
        "payload": dict(event.payload),
    }


async def write_event(work: UnitOfWork, event: Event) -> None:
    numbered = await work.events.add(event)
    await work.notices.put("event", event.job_id, event_data(numbered))


async def write_job(work: UnitOfWork, job: Job, *events: Event, before: Job | None) -> Job:
    """Saves the job (adds it where `before` is None), its events, a `state` notice where a reader sees a change, and a
    message to the webhooks where its state is another."""
    if before is None:
        await work.jobs.add(job)
    else:
        job = await work.jobs.save(job)
    for event in events:
        await write_event(work, event)
    shown: Mapping[str, Any] = state_data(job)
    if before is None or shown != state_data(before):
        await work.notices.put("state", job.id, shown)
    if before is None or before.state is not job.state:
        data = {**shown, "from": None if before is None else str(before.state)}
        await work.webhooks.put({"type": "job.state", "timestamp": rfc3339(job.since), "data": data}, job.since)
    return job
