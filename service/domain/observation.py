"""What a heartbeat changes in a job: its progress, its state, and what its end means. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from service.domain.attempt import FAILURE_BUDGET, Attempt, backoff_s
from service.domain.deviation import off_plan
from service.domain.event import Event
from service.domain.job import Intent, Job, JobState, Progress, Trigger, apply
from service.domain.log import bounded
from service.domain.text import counted
from service.domain.wire import Heartbeat, Outcome, Phase, Sample

S, T = JobState, Trigger

# How every note of a controller begins, behind the reason that it is added to.
NOTE_MARK = "; waiting for "

# The triggers that bring a job from its state to the phase that its controller reports; absent: nothing to do.
PHASE_TRIGGERS: Mapping[tuple[JobState, Phase], tuple[Trigger, ...]] = MappingProxyType(
    {
        (S.STARTING, "running"): (T.START,),
        (S.STARTING, "resizing"): (T.START, T.RESIZE),
        (S.STARTING, "recovering"): (T.LOSE,),
        (S.RUNNING, "resizing"): (T.RESIZE,),
        (S.RUNNING, "recovering"): (T.LOSE,),
        (S.RESIZING, "running"): (T.RUN,),
        (S.RESIZING, "recovering"): (T.LOSE,),
        (S.RECOVERING, "running"): (T.RUN,),
        (S.RECOVERING, "resizing"): (T.RESIZE,),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A job after something happened, with the events that tell it."""

    job: Job
    events: tuple[Event, ...] = ()

    def then(self, trigger: Trigger, *, now: datetime, reason: str, workers: int | None = None) -> Change:
        payload = {} if workers is None else {"workers": workers}
        job, event = apply(self.job, trigger, now=now, reason=reason, payload=payload)
        return Change(job=job, events=(*self.events, event))


# ---- progress ------------------------------------------------------------------------------------------------------


def observe(job: Job, attempt: Attempt, beat: Heartbeat, samples: Iterable[Sample], *, now: datetime) -> Change:
    """The job after the facts of a heartbeat, its outcome not yet looked at."""
    if is_late(job, attempt, beat):
        return Change(job=replace(job, progress=replace(job.progress, heard_at=now)))
    before, progress = job, _progress(job.progress, attempt, beat, tuple(samples))
    stepped_at = now if progress.step > before.progress.step else before.progress.stepped_at
    job = replace(job, progress=replace(progress, heard_at=now, stepped_at=stepped_at))
    change = Change(job=job, events=off_plan(before, job, now=now))
    for trigger in _triggers(job, beat.phase):
        reason = _REASONS[trigger].format(workers=counted(beat.world_size, "worker"), step=beat.step)
        change = change.then(trigger, now=now, reason=reason, workers=beat.world_size)
    return replace(change, job=_noted(change.job, beat))


def _noted(job: Job, beat: Heartbeat) -> Job:
    """What the attempt waits for stands behind the reason for as long as it does."""
    if beat.outcome is not None or job.state not in (S.STARTING, S.RUNNING, S.RESIZING, S.RECOVERING):
        return job
    reason = job.reason.partition(NOTE_MARK)[0]
    return replace(job, reason=f"{reason}; {bounded(beat.note)}" if beat.note else reason)


def is_late(job: Job, attempt: Attempt, beat: Heartbeat) -> bool:
    """Whether a newer heartbeat was taken in before this one: what it says of the present is past.

    Inside one generation only a training group never goes back; one that recovers does, to its checkpoint.
    """
    known, generation = job.progress, attempt.generation_before + beat.generation
    if generation != known.generation:
        return generation < known.generation
    return attempt.phase == beat.phase == "running" and beat.step < known.step


def _triggers(job: Job, phase: Phase) -> tuple[Trigger, ...]:
    if job.state is S.PAUSING:
        return (T.RUN,) if phase == "running" and job.intent is Intent.RUN else ()
    return PHASE_TRIGGERS.get((job.state, phase), ())


_REASONS = {
    T.START: "Training on {workers}",
    T.RUN: "Training on {workers} from step {step}",
    T.RESIZE: "Changing the number of workers at step {step}",
    T.LOSE: "A worker was lost at step {step}; going on with those that are left",
}


def _progress(before: Progress, attempt: Attempt, beat: Heartbeat, samples: tuple[Sample, ...]) -> Progress:
    generation = attempt.generation_before + beat.generation
    return replace(
        before,
        # A controller that has not trained yet does not know from which step it would go on.
        step=beat.step if beat.generation and beat.phase != "starting" else before.step,
        generation=generation,
        # The last word names no workers; they count until their controller's process is seen gone.
        workers=before.workers if beat.phase == "ended" else len(beat.workers) or beat.world_size,
        loss=_latest(samples, "loss", before.loss),
        tokens_per_s=_latest(samples, "tokens_per_s", before.tokens_per_s),
        # Ranks are numbers inside one generation: what another one measured is of other workers.
        memory=_memory(samples, generation, before.memory if generation == before.generation else {}),
    )


def _latest(samples: tuple[Sample, ...], name: str, before: float | None) -> float | None:
    found = [s for s in samples if s.name == name and s.rank is None]
    value = max(found, key=lambda s: (s.generation, s.step)).value if found else before
    return value if value is not None and math.isfinite(value) else None


def _memory(
    samples: tuple[Sample, ...], generation: int, before: Mapping[str, Mapping[str, int]]
) -> Mapping[str, Mapping[str, int]]:
    """mem_KIND_bytes that each rank of this generation last measured, by rank and KIND."""
    memory = {rank: dict(kinds) for rank, kinds in before.items()}
    for sample in sorted(samples, key=lambda sample: sample.step):
        named = sample.name.startswith("mem_") and sample.name.endswith("_bytes")
        if named and sample.rank is not None and sample.generation == generation and math.isfinite(sample.value):
            memory.setdefault(str(sample.rank), {})[sample.name[4:-6]] = int(sample.value)
    return memory


# ---- the end of an attempt -----------------------------------------------------------------------------------------


def conclude(job: Job, outcome: Outcome, *, now: datetime) -> Change:
    """The job after its attempt said how it ended. What the user wants decides what a stop means."""
    change, reason = Change(job=job), outcome.reason
    if outcome.result == "succeeded":
        return change.then(T.SUCCEED, now=now, reason=reason or f"All {job.steps} steps done")
    if job.intent is Intent.CANCEL:
        return change.then(T.FINISH_CANCEL, now=now, reason=f"Cancelled at step {job.progress.step}")
    if outcome.result in ("paused", "superseded"):
        return _stopped(job, reason, now=now)
    if outcome.result == "failed" and outcome.cause == "user":
        return change.then(T.FAIL, now=now, reason=reason or "The user's code raised an exception")
    return lose(job, cause=outcome.cause or "system", reason=reason, now=now)


def _stopped(job: Job, reason: str, *, now: datetime) -> Change:
    if job.intent is Intent.PAUSE:
        return Change(job=job).then(T.FINISH_PAUSE, now=now, reason=f"Paused at step {job.progress.step}")
    why = f"Stopped at step {job.progress.step}{f' ({reason})' if reason else ''}; goes on when there are slots for it"
    return Change(job=job).then(T.REQUEUE, now=now, reason=why)


def settle(job: Job, *, now: datetime) -> Change:
    """A job that was to stop while no attempt drove it: there is nobody to wait for."""
    if job.intent is Intent.CANCEL:
        return Change(job=job).then(T.FINISH_CANCEL, now=now, reason=f"Cancelled at step {job.progress.step}")
    return _stopped(job, "no attempt was running", now=now)


def lose(job: Job, *, cause: str, reason: str, now: datetime) -> Change:
    """The attempt is gone without having finished: stop where the user wanted a stop, else try again within the budget.

    Progress since the last loss gives the whole budget back.
    """
    if job.intent is Intent.CANCEL:
        return Change(job=job).then(T.FINISH_CANCEL, now=now, reason=f"Cancelled at step {job.progress.step}")
    if job.intent is Intent.PAUSE:
        return Change(job=job).then(T.FINISH_PAUSE, now=now, reason=f"Paused at step {job.progress.step}")
    moved = job.progress.step > job.failed_at_step
    failures = 1 if moved else job.failures + 1
    wait_s = backoff_s(failures)
    told = Event(
        job_id=job.id,
        kind="attempt_lost",
        at=now,
        message=reason,
        attempt=job.attempt,
        step=job.progress.step,
        payload={"attempt": job.attempt, "cause": cause, "retries": failures, "retry_in_s": wait_s},
    )
    job = replace(job, failures=failures, failed_at_step=job.progress.step, retry_at=now + timedelta(seconds=wait_s))
    change = Change(job=job, events=(told,))
    if failures > FAILURE_BUDGET:
        why = f"{failures} attempts in a row were lost at step {job.progress.step} without progress; the last: {reason}"
        return change.then(T.FAIL, now=now, reason=why)
    why = f"Attempt {job.attempt} was lost ({reason}); trying again in {wait_s:.0f} s from the newest checkpoint"
    return change.then(T.LOSE if job.state is not S.PAUSING else T.REQUEUE, now=now, reason=why)
