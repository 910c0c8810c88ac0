"""Which attempt may write a job's checkpoints: the newest that ever claimed it.

A controller that was paused and wakes up after another took over is told so before it publishes or deletes.
"""

from __future__ import annotations

from workers.checkpoint import places
from workers.checkpoint.errors import CheckpointSuperseded
from workers.checkpoint.store import Store


def claim(store: Store, *, job: str, attempt: int) -> None:
    """From now on no older attempt may write. Raises CheckpointSuperseded where a newer one has claimed already."""
    check(store, job=job, attempt=attempt)
    store.put(places.claim_file(job, attempt), b"")


def check(store: Store, *, job: str, attempt: int) -> None:
    """Raises CheckpointSuperseded where a newer attempt has claimed the job."""
    matches = (places.CLAIM.fullmatch(name) for name in store.names(places.job_folder(job)))
    newest = max((int(match[1]) for match in matches if match), default=attempt)
    if newest > attempt:
        raise CheckpointSuperseded(job=job, attempt=attempt, newer=newest)
