"""What the control plane knows of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord:
    """A published checkpoint: its manifest was written, so it is whole. `pinned`: retention leaves it alone."""

    job_id: str
    step: int
    uri: str
    size_bytes: int
    files: int
    duration_s: float
    attempt: int
    at: datetime
    pinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRequest:
    """The wish for a checkpoint now; it is met by the first report that carries its id."""

    id: str
    job_id: str
    at: datetime
    met_at_step: int | None = None


# Scheme of an object store -> the extra that brings its driver to the workers.
OBJECT_SCHEMES = {
    "s3": "elastane[s3]",
    "gs": "elastane[gcs]",
    "gcs": "elastane[gcs]",
    "az": "elastane[azure]",
    "abfs": "elastane[azure]",
    "memory": "elastane[workers]",
}


def job_folder(*, base_uri: str, job_id: str) -> str:
    """`URI/JOB`: where the checkpoints of one job live."""
    return f"{base_uri.rstrip('/')}/{job_id}"
