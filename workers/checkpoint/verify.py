"""Is a published checkpoint still what was written? Sizes in a moment, bytes in one read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from workers.checkpoint import places
from workers.checkpoint.blocks import VerifiedFile
from workers.checkpoint.errors import CheckpointDamaged
from workers.checkpoint.manifest import Manifest
from workers.checkpoint.store import Store


@contextmanager
def opened(store: Store, manifest: Manifest, file: str) -> Iterator[VerifiedFile]:
    """A file of the checkpoint. Every trouble in reading it is CheckpointDamaged and names it."""
    with _read(manifest, file), store.open(_path(manifest, file)) as source:
        yield VerifiedFile(source, manifest.files[file], step=manifest.step, name=file)


def check_files(store: Store, manifest: Manifest) -> None:
    """Raises CheckpointDamaged where a file of the manifest is missing, cannot be reached or has another size."""
    for file, checksum in manifest.files.items():
        with _read(manifest, file):
            size_bytes = store.size(_path(manifest, file))
        if size_bytes != checksum.size_bytes:
            reason = f"has {size_bytes} bytes, {checksum.size_bytes} were written"
            raise CheckpointDamaged(step=manifest.step, file=file, reason=reason)


def damages(store: Store, manifest: Manifest) -> Iterator[CheckpointDamaged]:
    """Reads every byte of every file; one finding per damaged file, none for a whole checkpoint."""
    for file, checksum in manifest.files.items():
        try:
            with opened(store, manifest, file) as whole:
                for _ in whole.blocks([(0, checksum.size_bytes)]):
                    pass
        except CheckpointDamaged as damage:
            yield damage


def _path(manifest: Manifest, file: str) -> str:
    return f"{places.step_folder(manifest.job, manifest.step)}/{file}"


@contextmanager
def _read(manifest: Manifest, file: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise CheckpointDamaged(step=manifest.step, file=file, reason="is missing") from error
    except OSError as error:
        raise CheckpointDamaged(step=manifest.step, file=file, reason=f"cannot be read ({error})") from error
