"""A job's checkpoints: which are there, which is the newest whole one, what dead attempts left."""

from __future__ import annotations

from dataclasses import dataclass

from workers.checkpoint import claims, places
from workers.checkpoint.errors import CheckpointDamaged, CheckpointError, CheckpointIncomplete
from workers.checkpoint.manifest import Manifest, decode
from workers.checkpoint.store import PARTIAL, Store, read_whole
from workers.checkpoint.verify import check_files, damages


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The newest whole checkpoint, None where there is none, and why each newer one was passed over."""

    manifest: Manifest | None
    passed_over: tuple[CheckpointError, ...]


def steps(store: Store, job: str) -> tuple[int, ...]:
    """Steps that have a folder, published or not, ascending."""
    found = (places.step_of(name) for name in store.names(places.job_folder(job)))
    return tuple(sorted(step for step in found if step is not None))


def inspect(store: Store, job: str, step: int, *, verify_bytes: bool = False) -> Manifest:
    """The manifest of a checkpoint whose files are all there in full size; with `verify_bytes`, every byte proved.

    Raises CheckpointIncomplete where nothing was published, CheckpointDamaged naming the file.
    """
    manifest = _read_manifest(store, job, step)
    if gaps := manifest.gaps():
        raise CheckpointIncomplete(step=step, missing=gaps, hint="resume from an older one")
    check_files(store, manifest)
    if verify_bytes:
        for damage in damages(store, manifest):
            raise damage
    return manifest


def newest_complete(store: Store, job: str, *, below: int | None = None, verify_bytes: bool = False) -> Found:
    """The newest whole checkpoint (of a step under `below`).

    Without `verify_bytes` a changed byte is found by `read_into`: call again with `below` set to that step.
    """
    passed_over: list[CheckpointError] = []
    for step in reversed(steps(store, job)):
        if below is not None and step >= below:
            continue
        try:
            manifest = inspect(store, job, step, verify_bytes=verify_bytes)
        except (CheckpointDamaged, CheckpointIncomplete) as error:
            passed_over.append(error)
        else:
            return Found(manifest=manifest, passed_over=tuple(passed_over))
    return Found(manifest=None, passed_over=tuple(passed_over))


def is_published(store: Store, job: str, step: int) -> bool:
    return places.MANIFEST in store.names(places.step_folder(job, step))


def collect(store: Store, *, job: str, attempt: int) -> tuple[str, ...]:
    """Delete what older attempts left behind: rank files that no manifest names, half written manifests.

    Returns their paths. Files of this attempt's ranks stay. Call when an attempt starts, before it publishes.
    """
    claims.check(store, job=job, attempt=attempt)
    removed: list[str] = []
    for step in steps(store, job):
        folder = places.step_folder(job, step)
        names = store.names(folder)
        left = [name for name in names if _is_left_over(name, attempt)]
        if left and places.MANIFEST in names:
            left = [name for name in left if name not in _listed(store, job, step)]
        for name in left:
            store.delete(f"{folder}/{name}")
            removed.append(f"{folder}/{name}")
        if not store.names(folder):
            store.delete(folder)
    return tuple(removed)


def _read_manifest(store: Store, job: str, step: int) -> Manifest:
    try:
        data = read_whole(store, f"{places.step_folder(job, step)}/{places.MANIFEST}")
    except FileNotFoundError as error:
        hint = "its save did not end; resume from an older one"
        raise CheckpointIncomplete(step=step, missing=[f"there is no {places.MANIFEST}"], hint=hint) from error
    except OSError as error:
        raise CheckpointDamaged(step=step, file=places.MANIFEST, reason=f"cannot be read ({error})") from error
    return decode(data, step=step)


def _is_left_over(name: str, attempt: int) -> bool:
    if name.endswith(PARTIAL):
        return True
    written_by = places.attempt_of(name)
    return written_by is not None and written_by < attempt


def _listed(store: Store, job: str, step: int) -> frozenset[str]:
    """Files that the manifest names; a damaged one may be mended by hand, so then all of them are."""
    try:
        return frozenset(_read_manifest(store, job, step).files)
    except (CheckpointDamaged, CheckpointIncomplete):
        return frozenset(store.names(places.step_folder(job, step)))
