"""Tensors cut into rows of dim 0, as `torch.chunk` cuts them and FSDP2 shards them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from workers.layout.interval import Interval
from workers.layout.layout import Layout, Piece


def stays_whole(shape: Sequence[int]) -> bool:
    """A scalar has no rows, and an empty tensor has nothing to cut."""
    return not shape or 0 in shape


def rows(shape: Sequence[int], *, part: int, parts: int) -> Interval:
    """The flat interval of part `part` of `parts`: equal runs of rows, the last ones shorter or empty."""
    numel = math.prod(shape)
    if stays_whole(shape):
        return Interval(0, numel)
    row_numel, size = numel // shape[0], -(-shape[0] // parts)
    start = min(part * size, shape[0])
    return Interval(start * row_numel, min(start + size, shape[0]) * row_numel)


def row_layout(shapes: Mapping[str, Sequence[int]], *, world: int, shard_size: int) -> Layout[int]:
    """rank -> pieces. Each run of `shard_size` ranks holds everything once; empty pieces appear nowhere."""
    pieces = {}
    for rank in range(world):
        mine = (Piece(name, rows(shape, part=rank % shard_size, parts=shard_size)) for name, shape in shapes.items())
        pieces[rank] = tuple(piece for piece in mine if piece.numel)
    return Layout(pieces)
