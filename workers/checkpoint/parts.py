"""What one rank writes: pieces of named tensors, with their values when asked.

A writer takes parts and not an engine, so that a snapshot in host memory is saved in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from workers.checkpoint import dtypes
from workers.engine.protocol import Engine
from workers.engine.states import StateKind, TensorMeta
from workers.layout.balance import once
from workers.layout.interval import Interval
from workers.layout.layout import Piece

STATE_DTYPE = "float32"
BUFFER = "buffer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a saved tensor: its name, shape and dtype are those of the whole one."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    interval: Interval
    values: Callable[[], Tensor]

    @property
    def is_whole(self) -> bool:
        return self.interval.numel == numel(self.shape)

    @property
    def key(self) -> str:
        """Its key inside a file: the plain name where the file has all of it."""
        return self.name if self.is_whole else f"{self.name}[{self.interval.start}:{self.interval.stop}]"

    @property
    def stored_shape(self) -> tuple[int, ...]:
        return self.shape if self.is_whole else (self.interval.numel,)


def state_name(kind: StateKind, tensor: str) -> str:
    return f"{kind.value}/{tensor}"


def buffer_name(buffer: str) -> str:
    return f"{BUFFER}/{buffer}"


def kinds_of(engine: Engine, meta: TensorMeta) -> tuple[StateKind, ...]:
    """A frozen parameter has a value and no moments."""
    kinds = engine.kinds() if meta.kept is None else meta.kept
    return kinds if meta.trainable else (StateKind.MASTER,)


def parts_of(engine: Engine, *, rank: int) -> tuple[Part, ...]:
    """What this rank writes of the engine's state: over all ranks everything, once, and about evenly.

    Values are exported when the writer asks for them, one piece at a time.
    """
    tensors = engine.tensors()
    mine = [piece for piece in once(engine.layout()).of(rank) if piece.tensor in tensors]
    if rank == 0:
        mine += [Piece(name, Interval(0, 0)) for name, meta in tensors.items() if meta.numel == 0]
    parts = [
        _state_part(engine, kind, piece, tensors[piece.tensor])
        for kind in engine.kinds()
        for piece in mine
        if kind in kinds_of(engine, tensors[piece.tensor])
    ]
    return (*parts, *(_buffer_parts(engine.buffers()) if rank == 0 else ()))


def numel(shape: tuple[int, ...]) -> int:
    return TensorMeta(shape=shape, dtype=STATE_DTYPE).numel


def _state_part(engine: Engine, kind: StateKind, piece: Piece, meta: TensorMeta) -> Part:
    return Part(
        name=state_name(kind, piece.tensor),
        shape=meta.shape,
        dtype=STATE_DTYPE,
        interval=piece.interval,
        values=partial(engine.export, kind, piece),
    )


def _buffer_parts(buffers: Mapping[str, Tensor]) -> tuple[Part, ...]:
    return tuple(
        Part(
            name=buffer_name(name),
            shape=tuple(buffer.shape),
            dtype=dtypes.name_of(buffer.dtype),
            interval=Interval(0, buffer.numel()),
            values=partial(buffer.detach),
        )
        for name, buffer in buffers.items()
    )
