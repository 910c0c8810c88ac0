"""One launch of a controller for a job, what it last said, and when silence means something."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from service.domain.wire import Phase, WorkerReport

# A controller beats about once a second: after this long a reader is told that it is unreachable.
SILENT_AFTER = timedelta(seconds=10)
# Lost attempts without progress between them, before the job fails.
FAILURE_BUDGET = 5
BACKOFF_FIRST_S = 1.0
BACKOFF_LIMIT_S = 60.0


class AttemptState(StrEnum):
    LAUNCHING = "launching"
    LIVE = "live"
    ENDED = "ended"


class Liveness(StrEnum):
    """What the launcher knows of a controller's process. UNKNOWN is never taken for GONE."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """generation_before: the job's generation when this attempt was created. The controller counts from 1; stored
    generations are that number plus this one, so a later attempt always supersedes an earlier one.
    acknowledged: number of the next fact the service wants.
    released: its process is known to be gone, so that its slots are free; an ended attempt may live a moment longer."""

    id: str
    job_id: str
    number: int
    state: AttemptState
    created_at: datetime
    launched_at: datetime | None = None
    seen_at: datetime | None = None
    ended_at: datetime | None = None
    result: str | None = None
    reason: str = ""
    phase: Phase = "starting"
    generation_before: int = 0
    acknowledged: int = 0
    workers: tuple[WorkerReport, ...] = ()
    released: bool = False

    @property
    def ended(self) -> bool:
        return self.state is AttemptState.ENDED

    @property
    def members(self) -> tuple[WorkerReport, ...]:
        """Of the present generation, by rank; nobody where it has ended."""
        return () if self.ended else tuple(sorted(self.workers, key=lambda worker: worker.rank))


def silent_for_s(attempt: Attempt, *, now: datetime) -> float:
    """Seconds since the last sign of life."""
    last = attempt.seen_at or attempt.launched_at or attempt.created_at
    return max(0.0, (now - last).total_seconds())


def is_silent(attempt: Attempt, *, now: datetime) -> bool:
    """Whether a reader should be told. Before the first heartbeat an attempt is starting, not silent."""
    return attempt.seen_at is not None and now - attempt.seen_at > SILENT_AFTER


def backoff_s(failures: int) -> float:
    """Wait before the next launch after `failures` losses in a row: 1, 2, 4 ... 60 s."""
    return min(BACKOFF_LIMIT_S, BACKOFF_FIRST_S * 2.0 ** max(0, failures - 1))
