"""What a checkpoint contains, as a layout over files: the one file that makes the others a checkpoint.

Plain JSON; `checksum` is over the same document without it, and the bytes are the one canonical form, so a flipped bit
anywhere is seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import xxhash

from workers.checkpoint import dtypes, places
from workers.checkpoint.blocks import Checksum
from workers.checkpoint.errors import CheckpointDamaged, CheckpointFormatUnknown
from workers.checkpoint.parts import numel
from workers.layout.coverage import missing
from workers.layout.interval import Interval
from workers.layout.layout import Layout, Piece

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPiece:
    """An interval of a flattened tensor, under `key` in `file`."""

    file: str
    key: str
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """A saved tensor: `master/<name>`, `exp_avg/<name>`, ..., `buffer/<name>`."""

    shape: tuple[int, ...]
    dtype: str
    pieces: tuple[StoredPiece, ...]

    @property
    def numel(self) -> int:
        return numel(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`samples` of the endless order were consumed up to and including `step`; `scalars` is the engine's state that is
    not per element, `extra` the training loop's."""

    job: str
    step: int
    attempt: int
    samples: int
    spec_digest: str
    world_size: int
    tensors: Mapping[str, StoredTensor]
    files: Mapping[str, Checksum]
    scalars: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    written_by: Mapping[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(checksum.size_bytes for checksum in self.files.values())

    def layout(self) -> Layout[str]:
        """file -> pieces."""
        pieces: dict[str, list[Piece]] = {file: [] for file in self.files}
        for name, tensor in self.tensors.items():
            for stored in tensor.pieces:
                pieces[stored.file].append(Piece(name, stored.interval))
        return Layout({file: tuple(parts) for file, parts in pieces.items()})

    def gaps(self) -> tuple[str, ...]:
        """Elements that no file holds, and those that two do; empty for a whole checkpoint."""
        whole = {name: tensor.numel for name, tensor in self.tensors.items()}
        lost = [f"{piece.tensor} {span(piece.interval)} is in no file" for piece in missing(whole, self.layout())]
        return (*lost, *(line for name, tensor in self.tensors.items() for line in _overlaps(name, tensor)))


def span(interval: Interval) -> str:
    return f"[{interval.start}, {interval.stop})"


def encode(manifest: Manifest) -> bytes:
    """The file's bytes."""
    document = json.loads(json.dumps(_document(manifest)))
    return _canonical({**document, "checksum": _checksum(document)})


def decode(data: bytes, *, step: int) -> Manifest:
    """Raises CheckpointDamaged where the bytes are not what `encode` wrote for this step."""
    try:
        document = json.loads(data)
        claimed = document.pop("checksum")
        if claimed != _checksum(document) or data != _canonical({**document, "checksum": claimed}):
            raise ValueError("its checksum is not that of its content")
        # After the checksum, whose rule every format keeps: a flipped bit must not look like a newer program.
        if document["format"] > FORMAT:
            raise CheckpointFormatUnknown(step=step, found=document["format"], known=FORMAT)
        manifest = _manifest(document)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointDamaged(step=step, file=places.MANIFEST, reason=f"cannot be read ({error})") from error
    if manifest.step != step:
        raise CheckpointDamaged(step=step, file=places.MANIFEST, reason=f"is of step {manifest.step}")
    return manifest


def _document(manifest: Manifest) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "job": manifest.job,
        "step": manifest.step,
        "attempt": manifest.attempt,
        "samples": manifest.samples,
        "spec_digest": manifest.spec_digest,
        "world_size": manifest.world_size,
        "tensors": {name: _tensor_document(tensor) for name, tensor in manifest.tensors.items()},
        "files": {name: asdict(checksum) for name, checksum in manifest.files.items()},
        "scalars": dict(manifest.scalars),
        "extra": dict(manifest.extra),
        "written_by": dict(manifest.written_by),
    }


def _tensor_document(tensor: StoredTensor) -> dict[str, Any]:
    pieces = [
        {"file": piece.file, "key": piece.key, "interval": [piece.interval.start, piece.interval.stop]}
        for piece in tensor.pieces
    ]
    return {"shape": list(tensor.shape), "dtype": tensor.dtype, "pieces": pieces}


def _manifest(document: Mapping[str, Any]) -> Manifest:
    fields = {key: value for key, value in document.items() if key not in ("format", "tensors", "files")}
    files = {_file_name(name): _stored_checksum(value) for name, value in document["files"].items()}
    tensors = {name: _tensor(value, files) for name, value in document["tensors"].items()}
    return Manifest(tensors=tensors, files=files, **fields)


def _tensor(document: Mapping[str, Any], files: Mapping[str, Checksum]) -> StoredTensor:
    dtypes.torch_dtype(document["dtype"])
    pieces = tuple(
        StoredPiece(file=piece["file"], key=piece["key"], interval=Interval(*piece["interval"]))
        for piece in document["pieces"]
    )
    if unknown := {piece.file for piece in pieces} - files.keys():
        raise ValueError(f"pieces lie in files that are not listed: {sorted(unknown)}")
    return StoredTensor(shape=tuple(document["shape"]), dtype=document["dtype"], pieces=pieces)


def _stored_checksum(document: Mapping[str, Any]) -> Checksum:
    checksum = Checksum(**{**document, "blocks": tuple(document["blocks"])})
    if checksum.block_bytes < 1 or len(checksum.blocks) != -(-checksum.size_bytes // checksum.block_bytes):
        raise ValueError(f"{len(checksum.blocks)} blocks cannot cover {checksum.size_bytes} bytes")
    return checksum


def _file_name(name: str) -> str:
    """A name that leads out of the folder is refused: a manifest may come from anywhere."""
    if places.attempt_of(name) is None:
        raise ValueError(f"{name!r} is no rank's file")
    return name


def _overlaps(name: str, tensor: StoredTensor) -> Iterable[str]:
    place = 0
    for piece in sorted(tensor.pieces, key=lambda piece: piece.interval):
        if piece.interval.start < place or piece.interval.stop > tensor.numel:
            yield f"{name} {span(piece.interval)} of {piece.file} is there twice or too long"
        place = max(place, piece.interval.stop)


def _canonical(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def _checksum(document: Mapping[str, Any]) -> str:
    return str(xxhash.xxh3_128_hexdigest(_canonical(document)))
