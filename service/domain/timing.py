"""Seconds of a step on the workers there are: by the rates of what they compute with, corrected by what the newest job
that was alike took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from service.domain.choice import ProfileOf, Room, choice_of
from service.domain.cluster import ClusterFacts
from service.domain.experience import alike
from service.domain.hardware import CORE, Accelerator, Rates, known_as
from service.domain.job import Job
from service.domain.memory import ITEM_BYTES
from service.domain.plan import Plan
from service.domain.spec import JobSpec, WorkerBounds
from service.domain.speed import step_time
from service.domain.worker_memory import computes_on_gpu


def timed(plan: Plan, spec: JobSpec, profiles: ProfileOf, facts: ClusterFacts | None, jobs: Iterable[Job]) -> Plan:
    """With seconds of a step in each line; without where neither the accelerator is known nor a job has measured."""
    profile, accelerator = profiles(spec), accelerator_of(spec, facts)
    on_gpu = computes_on_gpu(spec.resources, None if facts is None else facts.slot_kind)
    if profile is None or (on_gpu and accelerator is None):
        return plan
    rates = CORE if accelerator is None else accelerator.rates(item_bytes=ITEM_BYTES[spec.precision.params])
    factor = _correction(spec, profiles, jobs, rates)
    if factor is None and accelerator is None:
        return plan
    times = [step_time(spec, profile, choice, rates) for choice in plan.choices]
    seconds = [None if time is None else time.total_s * (factor or 1.0) for time in times]
    lines = (replace(choice, step_s=took_s) for choice, took_s in zip(plan.choices, seconds, strict=True))
    return replace(plan, choices=tuple(lines))


def accelerator_of(spec: JobSpec, facts: ClusterFacts | None) -> Accelerator | None:
    """The one that all workers would have, where that is a known one."""
    if not computes_on_gpu(spec.resources, None if facts is None else facts.slot_kind):
        return None
    there = {node.accelerator for node in facts.nodes if node.alive and node.slots} if facts is not None else set()
    names = {spec.resources.accelerator} if spec.resources.accelerator is not None else there
    found = {known_as(name) for name in names}
    return found.pop() if len(found) == 1 else None


def _correction(spec: JobSpec, profiles: ProfileOf, jobs: Iterable[Job], rates: Rates) -> float | None:
    """Measured over estimated, of the newest job that was alike and has measured."""
    for job in jobs:
        tokens_per_s, workers = job.progress.tokens_per_s, job.progress.workers
        if not tokens_per_s or not workers or not alike(job.spec, spec):
            continue
        ran = job.spec.model_copy(update={"workers": WorkerBounds(min=workers, max=workers)})
        profile, choice = profiles(ran), choice_of(ran, Room(profile_of=profiles, memory=None))
        time = None if profile is None or choice is None else step_time(ran, profile, choice, rates)
        if time is not None:
            return ran.training.batch_size * ran.training.seq_len / tokens_per_s / time.total_s
    return None
