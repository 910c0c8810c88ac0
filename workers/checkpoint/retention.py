"""Which checkpoints go when a new one is there, and which never do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workers.checkpoint import catalogue, claims, places
from workers.checkpoint.errors import CheckpointDamaged, CheckpointError, CheckpointIncomplete
from workers.checkpoint.store import PARTIAL, Store
from workers.checkpoint.writer import published_files


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """`keep_every` (in steps): the first checkpoint at or after each multiple of it stays for good, as pinned ones do:
    a save that had to wait for another is a little late."""

    keep_last: int = 3
    keep_every: int | None = None

    def __post_init__(self) -> None:
        if self.keep_last < 1 or (self.keep_every is not None and self.keep_every < 1):
            raise ValueError(f"{self}: at least the newest checkpoint is kept, and every first is the most")

    def spared(self, steps: Sequence[int]) -> frozenset[int]:
        """Of these, ascending."""
        if self.keep_every is None:
            return frozenset()
        turns = [step // self.keep_every for step in steps]
        return frozenset(step for step, turn, last in zip(steps, turns, [0, *turns], strict=False) if turn > last)


def pin(store: Store, *, job: str, step: int) -> None:
    """Retention does not remove it any more. Raises CheckpointIncomplete, CheckpointDamaged where it is not whole."""
    catalogue.inspect(store, job, step)
    store.put(places.pin_file(job, step), b"")


def unpin(store: Store, *, job: str, step: int) -> None:
    store.delete(places.pin_file(job, step))


def pinned(store: Store, job: str) -> frozenset[int]:
    matches = (places.PIN.fullmatch(name) for name in store.names(places.job_folder(job)))
    return frozenset(int(match[1]) for match in matches if match)


def remove(store: Store, *, job: str, step: int) -> None:
    """Delete one checkpoint and its pin. The manifest goes first: a half deleted folder is no checkpoint."""
    store.delete(places.manifest_path(job, step))
    store.delete(places.step_folder(job, step))
    unpin(store, job=job, step=step)


def erase(store: Store, *, job: str) -> None:
    """Everything that lies in the job's folder. The manifests go first: what a kill leaves is no checkpoint."""
    for step in catalogue.steps(store, job):
        store.delete(places.manifest_path(job, step))
    store.delete(places.job_folder(job))


def prune(store: Store, *, job: str, attempt: int, published: int, rule: Retention) -> tuple[int, ...]:
    """Make room after the checkpoint of step `published` was published, never before; returns the removed steps.

    The newest `keep_last` whole ones up to it stay, and those that are spared or pinned. A damaged one does not count,
    so that it cannot push out a whole one; nor does one of a later step: the job went back behind it. Files that no
    manifest names, of saves that were given up before, go too.
    """
    claims.check(store, job=job, attempt=attempt)
    published_steps = [step for step in catalogue.steps(store, job) if catalogue.is_published(store, job, step)]
    spared = pinned(store, job) | rule.spared(published_steps)
    kept = 0
    removed: list[int] = []
    for step in reversed(catalogue.steps(store, job)):
        if step > published:
            continue
        if step not in published_steps:
            remove(store, job=job, step=step)
        elif kept >= rule.keep_last and step not in spared:
            remove(store, job=job, step=step)
            removed.append(step)
        else:
            kept += _is_whole(store, job, step)
            _sweep(store, job, step)
    return tuple(removed)


def _sweep(store: Store, job: str, step: int) -> None:
    """One save is in flight at a time, and it ended: what the manifest does not name belongs to nobody."""
    try:
        named = published_files(store, job=job, step=step)
    except (OSError, CheckpointError):
        return
    for name in store.names(places.step_folder(job, step)):
        if name not in named and (places.attempt_of(name) is not None or name.endswith(PARTIAL)):
            store.delete(f"{places.step_folder(job, step)}/{name}")


def _is_whole(store: Store, job: str, step: int) -> bool:
    try:
        catalogue.inspect(store, job, step)
    except (CheckpointDamaged, CheckpointIncomplete):
        return False
    return True
