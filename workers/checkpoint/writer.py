"""Saving: each rank streams its own file, then one of them publishes the manifest.

Nothing is a checkpoint before `publish` returns, and nothing that was one is touched by a save that fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from workers.checkpoint import claims, places
from workers.checkpoint.blocks import BLOCK_BYTES, Checksum, Checksummer
from workers.checkpoint.dtypes import torch_dtype
from workers.checkpoint.errors import CheckpointIncomplete, CheckpointNotWritten
from workers.checkpoint.manifest import Manifest, StoredPiece, StoredTensor, encode
from workers.checkpoint.parts import Part
from workers.checkpoint.store import Sink, Store
from workers.checkpoint.tensor_file import encode_header, lay_out
from workers.checkpoint.verify import check_files
from workers.layout.interval import Interval


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
) -> FileReport:
    """Stream this rank's parts into a new file, one part in memory at a time; durable on return.

    A rank without parts writes an empty file, so that every rank reports. Raises CheckpointNotWritten.
    """
    file = places.new_rank_file(rank=rank, world_size=world_size, attempt=attempt)
    checksummer = Checksummer(block_bytes)
    metadata = {"job": job, "step": str(step), "attempt": str(attempt), "rank": f"{rank} of {world_size}"}
    with _not_written(step), store.create(f"{places.step_folder(job, step)}/{file}") as sink:
        _write(sink, checksummer, parts, metadata)
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
        claims.check(store, job=job, attempt=attempt)
        store.put(f"{places.step_folder(job, step)}/{places.MANIFEST}", encode(manifest))
    return manifest


def discard(store: Store, *, job: str, step: int, report: FileReport) -> None:
    """Delete the file of a save that will not be published, so that tries that fail do not fill the disk."""
    store.delete(f"{places.step_folder(job, step)}/{report.file}")


def _write(sink: Sink, checksummer: Checksummer, parts: Sequence[Part], metadata: Mapping[str, str]) -> None:
    entries = lay_out([(part.key, part.dtype, part.stored_shape) for part in parts])
    by_key = {part.key: part for part in parts}
    pending = memoryview(encode_header(entries, metadata))
    checksummer.update(pending)
    sink.write(pending)
    for entry in entries:
        data = _bytes_of(by_key[entry.key])
        checksummer.update(data)
        sink.write(data)


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
