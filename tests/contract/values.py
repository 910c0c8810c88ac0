"""Values to store: valid ones, with everything set that a store could lose."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from service.domain.attempt import Attempt, AttemptState
from service.domain.job import Intent, Job, JobState, Progress
from service.domain.spec import JobSpec, WorkerBounds
from service.domain.wire import Sample, WorkerReport

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
SPEC = JobSpec.model_validate({"model": "gpt-tiny", "name": "stories", "workers": {"min": 1, "max": 3}})


def number(index: int) -> str:
    """Ids sort by their number."""
    return f"00000000-0000-7000-8000-{index:012d}"


def job(index: int = 1, **fields: Any) -> Job:
    facts: dict[str, Any] = {
        "id": number(index),
        "spec": SPEC,
        "state": JobState.RUNNING,
        "reason": "Training on 2 workers",
        "intent": Intent.RUN,
        "bounds": WorkerBounds(min=1, max=3),
        "granted": 2,
        "attempt": 1,
        "attempt_id": number(900 + index),
        "failures": 1,
        "failed_at_step": 7,
        "retry_at": NOW + timedelta(seconds=2),
        "progress": Progress(
            step=12,
            generation=3,
            workers=2,
            loss=2.5,
            tokens_per_s=1e4,
            memory={"0": {"params": 10}},
            heard_at=NOW,
            stepped_at=NOW,
            told=3,
        ),
        "created_at": NOW,
        "since": NOW + timedelta(seconds=1),
        "started_at": NOW,
        "key_id": number(800),
    }
    return Job(**{**facts, **fields})


def attempt(index: int = 1, **fields: Any) -> Attempt:
    report = WorkerReport(worker_id="w0", rank=0, pid=1, node="n", device="cpu:0", state="running")
    facts: dict[str, Any] = {
        "id": number(900 + index),
        "job_id": number(index),
        "number": 1,
        "state": AttemptState.LIVE,
        "created_at": NOW,
        "launched_at": NOW,
        "seen_at": NOW,
        "phase": "running",
        "generation_before": 2,
        "acknowledged": 5,
        "workers": (report,),
    }
    return Attempt(**{**facts, **fields})


def sample(step: int, value: float, *, name: str = "loss", rank: int | None = None, generation: int = 1) -> Sample:
    at = NOW + timedelta(seconds=step)
    return Sample(name=name, rank=rank, step=step, generation=generation, value=value, at=at)
