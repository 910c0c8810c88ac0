"""What earlier jobs of a model measured on such workers, and how it corrects the next plan of that model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from service.domain.deviation import SMALLEST_BYTES, compared
from service.domain.job import Job
from service.domain.profile import Profile
from service.domain.spec import JobSpec

ACTIVATIONS = "activations_peak"
# What a rank says of the device under it, where that has a memory of its own.
CAPACITY = "capacity"
# A factor further from 1 is a fault of the measurement, or of the theory, and not a rule to plan by.
LEAST, MOST = 0.5, 2.0


def alike(one: JobSpec, other: JobSpec) -> bool:
    """Whether what a rank of one holds tells what a rank of the other will: the same model in the same units and types,
    in the same engine, on the same kind of worker."""
    same = (
        (each.model, each.units, each.precision, each.engine, each.compile, each.resources.accelerator)
        for each in (one, other)
    )
    recomputed = {bool(each.training.activation_checkpointing) for each in (one, other)}
    on_gpu = {bool(each.resources.gpu) for each in (one, other)}
    return len(recomputed) == len(on_gpu) == 1 and next(same) == next(same)


def device_bytes(spec: JobSpec, jobs: Iterable[Job]) -> int | None:
    """The least memory of its own that an accelerator had under the newest job that asked for the same."""
    wanted = (spec.resources.gpu, spec.resources.accelerator)
    for job in jobs:
        told = [kinds[CAPACITY] for kinds in job.progress.memory.values() if CAPACITY in kinds]
        if told and (job.spec.resources.gpu, job.spec.resources.accelerator) == wanted:
            return min(told)
    return None


def learnt(profile: Profile, spec: JobSpec, jobs: Iterable[Job]) -> Profile:
    """The profile, corrected by the first of the jobs (newest first) that is alike and has measured."""
    for job in jobs:
        if alike(job.spec, spec) and (kinds := job.progress.memory.get("0")) and compared(kinds):
            return _corrected(profile, spec, job, kinds)
    return profile


def _corrected(profile: Profile, spec: JobSpec, job: Job, kinds: Mapping[str, int]) -> Profile:
    factors = {
        kind: min(MOST, max(LEAST, measured / said))
        for kind, (measured, said) in compared(kinds).items()
        if said > SMALLEST_BYTES
    }
    if profile.passing or ACTIVATIONS not in kinds:
        return replace(profile, factors=factors)
    # It could not be traced; now it is known.
    tokens = [each.training.micro_batch_size * each.training.seq_len for each in (spec, job.spec)]
    found = math.ceil(kinds[ACTIVATIONS] * tokens[0] / tokens[1])
    return replace(profile, factors=factors, passing={ACTIVATIONS: found}, kept=found)
