"""Resuming: each rank reads exactly the blocks that hold what it needs, and proves each before it uses it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from workers.checkpoint.blocks import VerifiedFile
from workers.checkpoint.dtypes import torch_dtype
from workers.checkpoint.errors import CheckpointMismatch
from workers.checkpoint.manifest import Manifest, StoredPiece
from workers.checkpoint.parts import buffer_name, kinds_of, state_name
from workers.checkpoint.store import Store
from workers.checkpoint.tensor_file import data_places
from workers.checkpoint.verify import opened
from workers.engine.protocol import Engine
from workers.engine.states import StateKind
from workers.layout.coverage import merged
from workers.layout.interval import Interval
from workers.layout.layout import Piece

# Takes the elements of an interval: called once or more, until all wanted ones were given.
Deliver = Callable[[Interval, Tensor], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Want:
    """Elements of one saved tensor."""

    name: str
    interval: Interval
    deliver: Deliver


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extent:
    """Bytes `start <= i < stop` of a file, which are elements from `first` on of a wanted tensor."""

    start: int
    stop: int
    first: int
    dtype: torch.dtype
    deliver: Deliver


def read_into(engine: Engine, *, rank: int, manifest: Manifest, store: Store) -> None:
    """Fill this rank's state, scalars and buffers, whatever world size, stage or engine wrote them.

    No collective: the caller agrees with the other ranks that all have read, then calls `engine.commit_load()`.
    Raises CheckpointMismatch with every difference before anything is changed; CheckpointDamaged naming the file,
    and then the state is undefined until an older checkpoint was read.
    """
    if differences := _differences(engine, manifest):
        raise CheckpointMismatch(step=manifest.step, differences=differences)
    staged = _staged(engine, manifest)
    by_file: dict[str, list[tuple[StoredPiece, _Want]]] = defaultdict(list)
    for want in (*_of_state(engine, rank), *_of_buffers(staged)):
        for piece in manifest.tensors[want.name].pieces:
            if piece.interval.intersect(want.interval):
                by_file[piece.file].append((piece, want))
    for name, pairs in sorted(by_file.items()):
        with opened(store, manifest, name) as file:
            places = data_places(file)
            _read(file, [_extent(file, places, manifest, piece, want) for piece, want in pairs])
    for name, buffer in engine.buffers().items():
        buffer.detach().copy_(staged[name].view(buffer.shape))
    engine.load_scalars(manifest.scalars)


def _of_state(engine: Engine, rank: int) -> Iterator[_Want]:
    tensors = engine.tensors()
    for piece in merged(engine.layout().of(rank)):
        for kind in kinds_of(engine, tensors[piece.tensor]):
            deliver = partial(_load, engine, kind, piece.tensor)
            yield _Want(name=state_name(kind, piece.tensor), interval=piece.interval, deliver=deliver)


def _load(engine: Engine, kind: StateKind, tensor: str, interval: Interval, values: Tensor) -> None:
    engine.load(kind, Piece(tensor, interval), values)


def _staged(engine: Engine, manifest: Manifest) -> dict[str, Tensor]:
    """Room for every buffer as it was stored: the engine's own may be strided, or of another type by now."""
    stored = {name: manifest.tensors[buffer_name(name)] for name in engine.buffers()}
    return {name: torch.empty(tensor.numel, dtype=torch_dtype(tensor.dtype)) for name, tensor in stored.items()}


def _of_buffers(staged: Mapping[str, Tensor]) -> Iterator[_Want]:
    for name, flat in staged.items():
        yield _Want(name=buffer_name(name), interval=Interval(0, flat.numel()), deliver=partial(_stage, flat))


def _stage(flat: Tensor, interval: Interval, values: Tensor) -> None:
    flat[interval.start : interval.stop].copy_(values)


def _extent(
    file: VerifiedFile, places: Mapping[str, tuple[int, int]], manifest: Manifest, piece: StoredPiece, want: _Want
) -> _Extent:
    dtype = torch_dtype(manifest.tensors[want.name].dtype)
    start, stop = places.get(piece.key, (0, -1))
    if stop - start != piece.interval.numel * dtype.itemsize:
        raise file.damaged(f"does not hold {piece.key} as the manifest says")
    first = max(piece.interval.start, want.interval.start)
    last = min(piece.interval.stop, want.interval.stop)
    return _Extent(
        start=start + (first - piece.interval.start) * dtype.itemsize,
        stop=start + (last - piece.interval.start) * dtype.itemsize,
        first=first,
        dtype=dtype,
        deliver=want.deliver,
    )


def _read(file: VerifiedFile, extents: Sequence[_Extent]) -> None:
    """Extents never overlap: a file holds an element once, and a rank wants it once."""
    ordered = sorted(extents, key=lambda extent: extent.start)
    ends = [extent.stop for extent in ordered]
    for place, data in file.blocks((extent.start, extent.stop) for extent in ordered):
        for extent in ordered[bisect_right(ends, place) :]:
            if extent.start >= place + len(data):
                break
            _deliver(extent, place, data)


def _deliver(extent: _Extent, place: int, data: memoryview) -> None:
    start, stop = max(extent.start, place), min(extent.stop, place + len(data))
    size = extent.dtype.itemsize
    values = torch.frombuffer(data[start - place : stop - place], dtype=extent.dtype)
    first = extent.first + (start - extent.start) // size
    extent.deliver(Interval(first, first + values.numel()), values)


def _differences(engine: Engine, manifest: Manifest) -> list[str]:
    """Every way in which the checkpoint is not this engine's, in words."""
    shapes = _shapes(engine)
    found: list[str] = []
    for name, shape in shapes.items():
        stored = manifest.tensors.get(name)
        if stored is None:
            found.append(f"{name} {list(shape)} is not in the checkpoint")
        elif stored.shape != shape:
            found.append(f"{name} is {list(stored.shape)} in the checkpoint and {list(shape)} here")
    return found + [f"{name} is in the checkpoint alone" for name in manifest.tensors if name not in shapes]


def _shapes(engine: Engine) -> dict[str, tuple[int, ...]]:
    """Saved name -> shape of all that this engine would save."""
    shapes = {
        state_name(kind, name): meta.shape for name, meta in engine.tensors().items() for kind in kinds_of(engine, meta)
    }
    return shapes | {buffer_name(name): tuple(buffer.shape) for name, buffer in engine.buffers().items()}
