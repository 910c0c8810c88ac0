"""The timeline of a job: what happened, when, with numbers.

| kind | who | payload |
|---|---|---|
| submitted | service | workers {min, max}, key |
| launched | service | attempt, workers |
| started | service | workers |
| scaled | service | from {min, max}, to {min, max}, key |
| priority_changed | service | from, to, key |
| resizing, running, recovering | service | workers |
| requeued, pausing, paused, resumed, cancelling, cancelled, succeeded, failed | service | key, of who asked |
| attempt_lost | service | attempt, cause, retries, retry_in_s |
| resized | controller | from, to, pause_s, redone_steps, moved_bytes |
| rearranged | controller | from {stage, offload}, to {stage, offload}, pause_s, redone_steps, moved_bytes |
| collective_failed | controller | rank, unit, collective |
| worker_lost | controller | rank, worker, pid, node, reason |
| notice | controller | rank, worker, reason, left_s |
| worker_hung | controller | where: of each rank step, doing, place |
| worker_crashed | controller | worker, reason |
| workers_missing, fact_dropped | controller | - |
| memory_off_plan | service | of each kind that is over 10 % off: measured_bytes, predicted_bytes |
| adopted | controller | workers, redone_steps |
| recovered | controller | workers, from_step, redone_steps, pause_s |
| started_from | controller | uri, from_step, missing |
| checkpoint_started | controller | - |
| checkpoint_progress | controller | written_bytes, total_bytes, elapsed_s |
| checkpoint_saved | service | step, size_bytes, files, duration_s, pause_s |
| checkpoint_failed, checkpoint_dropped | controller | reason, request_id |
| checkpoint_verified, checkpoint_deleted, checkpoint_exported | service | whole; -; to |
| checkpoint_passed_over | controller | file, reason |
| any other word | controller | as sent |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

KIND_LIMIT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A line of the timeline. `id` is 0 until the store has numbered it; ids of one job grow with time, and `at` never
    goes back."""

    job_id: str
    kind: str
    at: datetime
    message: str = ""
    attempt: int | None = None
    generation: int | None = None
    step: int | None = None
    payload: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    id: int = 0
