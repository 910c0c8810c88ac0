"""A job and its state machine. `apply` is the only writer of `state`; an absent pair raises IllegalTransition.

Terminal is final: no transition leaves succeeded, failed or cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from service.domain.errors import IllegalTransition
from service.domain.event import Event
from service.domain.spec import JobSpec, WorkerBounds


class JobState(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    RESIZING = "resizing"
    RECOVERING = "recovering"
    PAUSING = "pausing"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
# States in which an attempt drives the job or should.
DRIVEN = frozenset(JobState) - TERMINAL - {JobState.QUEUED, JobState.PAUSED}


class Trigger(StrEnum):
    """What makes a job move: users (pause, resume, cancel), the reconciler, the reports of the attempt."""

    LAUNCH = "launch"
    START = "start"
    RESIZE = "resize"
    RUN = "run"
    LOSE = "lose"
    REQUEUE = "requeue"
    PAUSE = "pause"
    FINISH_PAUSE = "finish_pause"
    RESUME = "resume"
    CANCEL = "cancel"
    FINISH_CANCEL = "finish_cancel"
    SUCCEED = "succeed"
    FAIL = "fail"


class Intent(StrEnum):
    """What the user wants of the job; orders follow from it, whatever the state."""

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"


S, T = JobState, Trigger
_Table = dict[tuple[JobState, Trigger], tuple[JobState, str]]


def _driven(state: JobState) -> _Table:
    """What every state with a living attempt has in common."""
    return {
        (state, T.LOSE): (S.RECOVERING, "recovering"),
        (state, T.REQUEUE): (S.QUEUED, "requeued"),
        (state, T.PAUSE): (S.PAUSING, "pausing"),
        (state, T.CANCEL): (S.CANCELLING, "cancelling"),
        (state, T.SUCCEED): (S.SUCCEEDED, "succeeded"),
        (state, T.FAIL): (S.FAILED, "failed"),
    }


# (state, trigger) -> (next state, kind of the event that tells it).
TRANSITIONS: Mapping[tuple[JobState, Trigger], tuple[JobState, str]] = MappingProxyType(
    {
        (S.QUEUED, T.LAUNCH): (S.STARTING, "launched"),
        (S.QUEUED, T.PAUSE): (S.PAUSED, "paused"),
        (S.QUEUED, T.CANCEL): (S.CANCELLED, "cancelled"),
        (S.QUEUED, T.FAIL): (S.FAILED, "failed"),
        **_driven(S.STARTING),
        (S.STARTING, T.START): (S.RUNNING, "started"),
        **_driven(S.RUNNING),
        (S.RUNNING, T.RESIZE): (S.RESIZING, "resizing"),
        **_driven(S.RESIZING),
        (S.RESIZING, T.RUN): (S.RUNNING, "running"),
        **_driven(S.RECOVERING),
        (S.RECOVERING, T.LAUNCH): (S.RECOVERING, "launched"),
        (S.RECOVERING, T.RUN): (S.RUNNING, "running"),
        (S.RECOVERING, T.RESIZE): (S.RESIZING, "resizing"),
        (S.PAUSING, T.FINISH_PAUSE): (S.PAUSED, "paused"),
        (S.PAUSING, T.RESUME): (S.PAUSING, "resumed"),
        (S.PAUSING, T.RUN): (S.RUNNING, "running"),
        (S.PAUSING, T.REQUEUE): (S.QUEUED, "requeued"),
        (S.PAUSING, T.CANCEL): (S.CANCELLING, "cancelling"),
        (S.PAUSING, T.SUCCEED): (S.SUCCEEDED, "succeeded"),
        (S.PAUSING, T.FAIL): (S.FAILED, "failed"),
        (S.PAUSED, T.RESUME): (S.QUEUED, "resumed"),
        (S.PAUSED, T.CANCEL): (S.CANCELLED, "cancelled"),
        (S.CANCELLING, T.FINISH_CANCEL): (S.CANCELLED, "cancelled"),
        (S.CANCELLING, T.SUCCEED): (S.SUCCEEDED, "succeeded"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the attempt last said, when it was heard, and when it was first heard of a further step. told: workers that
    its latest orders name, which it may have before it says so. `memory`: bytes by rank and kind."""

    step: int = 0
    generation: int = 0
    workers: int = 0
    told: int = 0
    loss: float | None = None
    tokens_per_s: float | None = None
    memory: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    heard_at: datetime | None = None
    stepped_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The user's immutable spec and what has become of it.

    bounds: what the spec asked for, or the latest scale. granted: workers that the allocation gives it now (0: none).
    attempt: number of the latest launch (0: never launched). failures: lost attempts since the last progress.
    retry_at: no new launch before. since: when it came into its state.
    version: grows with each write; a write against another version is dropped.
    key_id: of the API key that submitted it; None where none was asked for.
    """

    id: str
    spec: JobSpec
    state: JobState
    reason: str
    intent: Intent = Intent.RUN
    bounds: WorkerBounds
    granted: int = 0
    attempt: int = 0
    attempt_id: str | None = None
    failures: int = 0
    failed_at_step: int = 0
    retry_at: datetime | None = None
    progress: Progress = Progress()
    created_at: datetime
    since: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    deleted_at: datetime | None = None
    version: int = 0
    key_id: str | None = None

    @property
    def name(self) -> str | None:
        return self.spec.name

    @property
    def steps(self) -> int:
        return self.spec.training.steps

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL


def apply(
    job: Job, trigger: Trigger, *, now: datetime, reason: str, payload: Mapping[str, Any] | None = None
) -> tuple[Job, Event]:
    """The job after `trigger`, and the event that tells it. Both are written in one transaction."""
    found = TRANSITIONS.get((job.state, trigger))
    if found is None:
        raise IllegalTransition(job_id=job.id, state=job.state, trigger=trigger)
    state, kind = found
    after = replace(
        job,
        state=state,
        reason=reason,
        since=job.since if state is job.state else now,
        granted=0 if state in TERMINAL or state in (S.QUEUED, S.PAUSED) else job.granted,
        started_at=job.started_at or (now if state is S.RUNNING else None),
        ended_at=now if state in TERMINAL else None,
    )
    event = Event(
        job_id=job.id,
        kind=kind,
        at=now,
        message=reason,
        attempt=job.attempt or None,
        generation=job.progress.generation or None,
        step=job.progress.step,
        payload=dict(payload or {}),
    )
    return after, event


def mermaid() -> str:
    """The table as a Mermaid state diagram, for ARCHITECTURE.md."""
    arrows = sorted({(str(a), str(b), str(trigger)) for (a, trigger), (b, _) in TRANSITIONS.items() if a != b})
    pairs: dict[tuple[str, str], list[str]] = {}
    for before, after, trigger in arrows:
        pairs.setdefault((before, after), []).append(trigger)
    lines = ["stateDiagram-v2", f"    [*] --> {S.QUEUED}"]
    lines += [f"    {before} --> {after}: {', '.join(triggers)}" for (before, after), triggers in pairs.items()]
    lines += [f"    {state} --> [*]" for state in sorted(TERMINAL)]
    return "\n".join(lines)
