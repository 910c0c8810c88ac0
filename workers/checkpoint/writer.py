"""Saving: each rank streams its own file, then one of them publishes the manifest.

Nothing is a checkpoint before `publish` returns, and nothing that was one is touched by a save that fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from workers.checkpoint import claims, places
from workers.checkpoint.blocks import BLOCK_BYTES, Checksum, Checksummer
from workers.checkpoint.dtypes import torch_dtype
from workers.checkpoint.errors import (
    CheckpointError,
    CheckpointIncomplete,
    CheckpointNotWritten,
    CheckpointSuperseded,
)
from workers.checkpoint.manifest import Manifest, StoredPiece, StoredTensor, decode, encode
from workers.checkpoint.parts import Part
from workers.checkpoint.store import Sink, Store, read_whole
from workers.checkpoint.tensor_file import encode_header, lay_out
from workers.checkpoint.verify import check_files
from workers.checkpoint.watch import Watch
from workers.layout.interval import Interval

# Hashed and written at a time: small enough to stay in a core's cache between the two.
STRIDE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPart:
    """What the manifest will say of one part."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    interval: Interval
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """A rank's file, durable on disk: what the publisher needs to know of it."""

    file: str
    rank: int
    world_size: int
    checksum: Checksum
    parts: tuple[WrittenPart, ...]


def write_rank(
    store: Store,
    *,
    job: str,
    step: int,
    attempt: int,
    rank: int,
    world_size: int,
    parts: Sequence[Part],
    block_bytes: int = BLOCK_BYTES,
    watch: Watch | None = None,
) -> FileReport:
    """Stream this rank's parts into a new file, one part in memory at a time; durable on return.

    A rank without parts writes an empty file, so that every rank reports. Raises CheckpointNotWritten, and
    CheckpointDropped where the watch says so; then the file is gone.
    """
    file = places.new_rank_file(rank=rank, world_size=world_size, attempt=attempt)
    checksummer = Checksummer(block_bytes)
    metadata = {"job": job, "step": str(step), "attempt": str(attempt), "rank": f"{rank} of {world_size}"}
    with _not_written(step), store.create(f"{places.step_folder(job, step)}/{file}") as sink:
        _write(_Stream(sink, checksummer, watch or Watch(step)), parts, metadata)
    written = tuple(
        WrittenPart(name=part.name, shape=part.shape, dtype=part.dtype, interval=part.interval, key=part.key)
        for part in parts
    )
    return FileReport(file=file, rank=rank, world_size=world_size, checksum=checksummer.finish(), parts=written)


def publish(
    store: Store,
    *,
    job: str,
    step: int,
    attempt: int,
    samples: int,
    spec_digest: str,
    reports: Sequence[FileReport],
    scalars: Mapping[str, Any],
    extra: Mapping[str, Any] | None = None,
) -> Manifest:
    """Make the reported files the checkpoint of `step`: write the manifest, atomically and last.

    Raises CheckpointIncomplete where the files do not hold every element once, CheckpointDamaged where one is not there
    in its full size, CheckpointSuperseded where a newer attempt has claimed the job, CheckpointNotWritten.
    """
    manifest = Manifest(
        job=job,
        step=step,
        attempt=attempt,
        samples=samples,
        spec_digest=spec_digest,
        world_size=len(reports),
        tensors=_tensors(reports),
        files={report.file: report.checksum for report in reports},
        scalars=scalars,
        extra=extra or {},
        written_by={"elastane": version("elastane"), "torch": torch.__version__},
    )
    _check_whole(manifest, reports)
    with _not_written(step):
        check_files(store, manifest)
        _put(store, manifest)
    return manifest


def withdraw(store: Store, *, job: str, step: int, reports: Sequence[FileReport]) -> None:
    """Delete the files of a save that is not to be published, so that tries that fail do not fill the disk.

    A manifest that names them, put by a call that then failed, goes first. What cannot be deleted now is swept later.
    """
    folder, files = places.step_folder(job, step), {report.file for report in reports}
    with suppress(OSError, CheckpointError):
        if set(published_files(store, job=job, step=step)) & files:
            store.delete(f"{folder}/{places.MANIFEST}")
    for file in sorted(files):
        with suppress(OSError):
            store.delete(f"{folder}/{file}")


def published_files(store: Store, *, job: str, step: int) -> tuple[str, ...]:
    """The files that the manifest of `step` names. Raises FileNotFoundError, CheckpointDamaged."""
    return tuple(decode(read_whole(store, places.manifest_path(job, step)), step=step).files)


class _Stream:
    """A file on its way: counted while the bytes are still in the processor's cache, then written."""

    def __init__(self, sink: Sink, checksummer: Checksummer, watch: Watch) -> None:
        self._sink, self._checksummer, self._watch = sink, checksummer, watch

    def expect(self, size_bytes: int) -> None:
        self._watch.expect(size_bytes)

    def write(self, data: memoryview) -> None:
        for start in range(0, len(data), STRIDE_BYTES):
            part = data[start : start + STRIDE_BYTES]
            self._checksummer.update(part)
            self._sink.write(part)
            self._watch.advance(len(part))


def _write(stream: _Stream, parts: Sequence[Part], metadata: Mapping[str, str]) -> None:
    entries = lay_out([(part.key, part.dtype, part.stored_shape) for part in parts])
    by_key = {part.key: part for part in parts}
    header = encode_header(entries, metadata)
    stream.expect(len(header) + max((entry.stop for entry in entries), default=0))
    stream.write(memoryview(header))
    for entry in entries:
        stream.write(_bytes_of(by_key[entry.key]))


def _put(store: Store, manifest: Manifest) -> None:
    """Fenced on both sides: a publisher that was stopped between the check and the put takes back what it put."""
    job, attempt, path = manifest.job, manifest.attempt, places.manifest_path(manifest.job, manifest.step)
    claims.check(store, job=job, attempt=attempt)
    try:
        store.put(path, encode(manifest), fresh=True)
    except FileExistsError:
        # Of an earlier try at this step, or of a newer attempt that published while this one was stopped.
        claims.check(store, job=job, attempt=attempt)
        store.put(path, encode(manifest))
    try:
        claims.check(store, job=job, attempt=attempt)
    except CheckpointSuperseded:
        if set(published_files(store, job=job, step=manifest.step)) == set(manifest.files):
            store.delete(path)
        raise


def _bytes_of(part: Part) -> memoryview:
    values: Tensor = part.values()
    if values.numel() != part.interval.numel or values.dtype != torch_dtype(part.dtype):
        raise ValueError(
            f"{part.key}: {values.numel()} elements of {values.dtype} were given, "
            f"{part.interval.numel} of {part.dtype} were announced"
        )
    flat = values.detach().reshape(-1).contiguous().cpu().view(torch.uint8)
    return flat.numpy().data


def _tensors(reports: Sequence[FileReport]) -> dict[str, StoredTensor]:
    tensors: dict[str, StoredTensor] = {}
    for report in reports:
        for part in report.parts:
            known = tensors.get(part.name, StoredTensor(shape=part.shape, dtype=part.dtype, pieces=()))
            piece = StoredPiece(file=report.file, key=part.key, interval=part.interval)
            tensors[part.name] = StoredTensor(shape=known.shape, dtype=known.dtype, pieces=(*known.pieces, piece))
    return tensors


def _check_whole(manifest: Manifest, reports: Sequence[FileReport]) -> None:
    ranks = sorted(report.rank for report in reports)
    world_size = max((report.world_size for report in reports), default=0)
    gaps = [f"rank {rank} of {world_size} did not report" for rank in sorted({*range(world_size)} - {*ranks})]
    gaps += [] if reports else ["no rank reported"]
    gaps += manifest.gaps()
    if gaps:
        raise CheckpointIncomplete(step=manifest.step, missing=gaps, hint="save again; nothing was published")


@contextmanager
def _not_written(step: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointNotWritten(step=step, reason=str(error)) from error
