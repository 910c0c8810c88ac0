"""What our actors are called: by job, attempt and worker, so that a later attempt finds what an earlier one left."""

from __future__ import annotations

from service.domain.wire import Brief

# How all of them begin.
OURS = "elastane:"


def actor_name(brief: Brief, worker: str) -> str:
    return f"{job_prefix(brief)}{brief.attempt_id}:{worker}"


def job_prefix(brief: Brief) -> str:
    return f"{OURS}{brief.job_id}:"
