"""Where FSDP2 puts tensors, in coordinates of the whole tensor: rows of dim 0, cut as `torch.chunk` cuts them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workers.engine.states import TensorMeta
from workers.layout.interval import Interval
from workers.layout.layout import Layout, Piece


def stays_whole(shape: Sequence[int]) -> bool:
    """FSDP2 shards rows: a scalar has none, and an empty tensor has nothing to shard."""
    return not shape or 0 in shape


def shard(meta: TensorMeta, *, part: int, parts: int) -> Interval:
    """The flat interval of part `part` of `parts`: equal runs of rows, the last ones shorter or empty."""
    if stays_whole(meta.shape):
        return Interval(0, meta.numel)
    rows, row_numel = meta.shape[0], meta.numel // meta.shape[0]
    size = -(-rows // parts)
    start = min(part * size, rows)
    return Interval(start * row_numel, min(start + size, rows) * row_numel)


def layout(metas: Mapping[str, TensorMeta], *, world: int, shard_size: int) -> Layout[int]:
    """rank -> pieces. Each run of `shard_size` ranks holds everything once; empty pieces appear nowhere."""
    pieces = {}
    for rank in range(world):
        mine = (Piece(name, shard(meta, part=rank % shard_size, parts=shard_size)) for name, meta in metas.items())
        pieces[rank] = tuple(piece for piece in mine if piece.numel)
    return Layout(pieces)
