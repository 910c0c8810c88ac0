"""Byte ranges of a checkpoint's file, and where their elements go: read block by block, each block proved first."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.checkpoint.blocks import VerifiedFile
from workers.checkpoint.dtypes import torch_dtype
from workers.checkpoint.manifest import StoredPiece
from workers.layout.interval import Interval

# Takes the elements of an interval: called once or more, until all wanted ones were given.
Deliver = Callable[[Interval, Tensor], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Bytes `start <= i < stop` of a file, which are elements from `first` on of a wanted tensor."""

    start: int
    stop: int
    first: int
    dtype: torch.dtype
    deliver: Deliver


def extent(
    file: VerifiedFile,
    places: Mapping[str, tuple[int, int]],
    piece: StoredPiece,
    wanted: Interval,
    dtype_name: str,
    deliver: Deliver,
) -> Extent:
    """Where the wanted elements of a stored piece lie. `places` are the file's own: key -> its bytes."""
    dtype = torch_dtype(dtype_name)
    start, stop = places.get(piece.key, (0, -1))
    if stop - start != piece.interval.numel * dtype.itemsize:
        raise file.damaged(f"does not hold {piece.key} as the manifest says")
    first = max(piece.interval.start, wanted.start)
    last = min(piece.interval.stop, wanted.stop)
    return Extent(
        start=start + (first - piece.interval.start) * dtype.itemsize,
        stop=start + (last - piece.interval.start) * dtype.itemsize,
        first=first,
        dtype=dtype,
        deliver=deliver,
    )


def read_extents(file: VerifiedFile, extents: Sequence[Extent]) -> None:
    """Extents never overlap: a file holds an element once, and a reader wants it once."""
    ordered = sorted(extents, key=lambda extent: extent.start)
    ends = [extent.stop for extent in ordered]
    for place, data in file.blocks((extent.start, extent.stop) for extent in ordered):
        for each in ordered[bisect_right(ends, place) :]:
            if each.start >= place + len(data):
                break
            _deliver(each, place, data)


def _deliver(extent: Extent, place: int, data: memoryview) -> None:
    start, stop = max(extent.start, place), min(extent.stop, place + len(data))
    size = extent.dtype.itemsize
    values = torch.frombuffer(data[start - place : stop - place], dtype=extent.dtype)
    first = extent.first + (start - extent.start) // size
    extent.deliver(Interval(first, first + values.numel()), values)
