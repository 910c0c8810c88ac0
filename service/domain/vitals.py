"""What an operator is woken for: a job that stands still, memory that is not as predicted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from service.domain.job import DRIVEN, Intent, Job

# What a rank holds at its peak; the planner's word is about the sum.
HELD = ("params", "grads", "optimizer", "activations_peak", "gathered_peak")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strides:
    """Per job the step it was last seen at, and when it came there, on this process's clock."""

    at: Mapping[str, tuple[int, float]] = field(default_factory=lambda: MappingProxyType({}))

    def seen(self, jobs: Iterable[Job], *, now_s: float) -> Strides:
        """After one more look. A job that is not to run does not stand still."""
        wanted = [job for job in jobs if job.state in DRIVEN and job.intent is Intent.RUN]
        return Strides(at=MappingProxyType({job.id: self._stride(job, now_s) for job in wanted}))

    def longest_s(self, *, now_s: float) -> float:
        """How long the job has made no step that has made none for longest."""
        return max((now_s - since for _, since in self.at.values()), default=0.0)

    def _stride(self, job: Job, now_s: float) -> tuple[int, float]:
        step, since = self.at.get(job.id, (-1, now_s))
        return (step, since) if step == job.progress.step else (job.progress.step, now_s)


def measured_over_predicted(jobs: Iterable[Job]) -> float:
    """The largest, over the ranks of all jobs, of what is held by what was predicted; 0 where nothing is known."""
    ranks = [rank for job in jobs if job.state in DRIVEN for rank in job.progress.memory.values()]
    known = [rank for rank in ranks if rank.get("predicted")]
    return max((sum(rank.get(kind, 0) for kind in HELD) / rank["predicted"] for rank in known), default=0.0)
