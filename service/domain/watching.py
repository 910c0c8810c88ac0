"""What the reconciler should do about an attempt, given what is known of its process. Pure.

Unreachable is not dead: silence alone ends nothing. Only a process known to be gone makes an attempt lost, and only
what the user asked for, or an attempt that never spoke, is ended by force.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from service.domain.attempt import Attempt, AttemptState, Liveness
from service.domain.job import Intent, Job, JobState

LOOK_AFTER = timedelta(seconds=3)
# A process that was just started, or has just said its last word, may not be seen as it is at once.
SETTLE = timedelta(seconds=3)
END_AFTER = timedelta(seconds=15)
CANCEL_AFTER = timedelta(seconds=30)
PAUSE_AFTER = timedelta(minutes=10)
FIRST_WORD_WITHIN = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The process is gone after the attempt ended: its slots are free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Start the process, or take note of it where it lives already."""

    alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The process is gone and never said how it ended."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndByForce:
    reason: str


Verdict = Release | Launch | Lost | EndByForce


def needs_look(attempt: Attempt, *, now: datetime) -> bool:
    """Whether the process has to be looked for: a controller that was heard just now lives."""
    return attempt.ended or attempt.seen_at is None or now - attempt.seen_at >= LOOK_AFTER


def judge(job: Job, attempt: Attempt, liveness: Liveness, *, now: datetime) -> Verdict | None:
    if liveness is Liveness.UNKNOWN:
        return None
    if attempt.ended:
        return _after_the_end(attempt, liveness, now)
    if attempt.state is AttemptState.LAUNCHING and attempt.launched_at is None:
        if liveness is Liveness.GONE and job.intent is not Intent.RUN:
            return Lost(reason="it had not been started yet")
        return Launch(alive=liveness is Liveness.ALIVE)
    if liveness is Liveness.GONE:
        settled = now - (attempt.launched_at or attempt.created_at) >= SETTLE
        return Lost(reason="its controller process is gone") if settled else None
    return _overdue(job, attempt, now)


def _after_the_end(attempt: Attempt, liveness: Liveness, now: datetime) -> Verdict | None:
    if liveness is Liveness.GONE:
        return Release()
    if attempt.ended_at is not None and now - attempt.ended_at >= END_AFTER:
        return EndByForce(reason="still there after its end")
    return None


def _overdue(job: Job, attempt: Attempt, now: datetime) -> Verdict | None:
    for_s = (now - job.since).total_seconds()
    if job.state is JobState.CANCELLING and now - job.since >= CANCEL_AFTER:
        return EndByForce(reason=f"did not cancel within {for_s:.0f} s")
    if job.state is JobState.PAUSING and now - job.since >= PAUSE_AFTER:
        return EndByForce(reason=f"did not pause within {for_s:.0f} s")
    if attempt.seen_at is None and now - (attempt.launched_at or attempt.created_at) >= FIRST_WORD_WITHIN:
        return EndByForce(reason=f"said nothing within {FIRST_WORD_WITHIN.total_seconds():.0f} s of its launch")
    return None
