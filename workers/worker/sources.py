"""What one worker can give of a step: values by piece, and what is not per element."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from workers.engine.protocol import Engine
from workers.engine.states import StateKind
from workers.layout.coverage import merged
from workers.layout.interval import Interval
from workers.layout.layout import Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """Equal on every rank: the engine's scalars, the model's buffers, how many steps were skipped."""

    scalars: dict[str, Any] = field(default_factory=dict)
    buffers: Mapping[str, torch.Tensor] = field(default_factory=dict)
    skipped: int = 0


class Source(Protocol):
    """State of one step."""

    @property
    def extras(self) -> Extras: ...

    def pieces(self) -> tuple[Piece, ...]: ...

    def read(self, kind: StateKind, piece: Piece) -> torch.Tensor:
        """1-D fp32; a view where one held piece covers the whole. A piece may span several that touch."""
        ...


class Patchwork:
    """Tensors that stay as they are, whatever the engine does next."""

    def __init__(self, values: Mapping[tuple[StateKind, Piece], torch.Tensor], extras: Extras) -> None:
        self._pieces = merged({piece for _, piece in values})
        self._extras = extras
        self._values = values
        self._by_tensor: dict[tuple[StateKind, str], list[Piece]] = defaultdict(list)
        for kind, piece in values:
            self._by_tensor[kind, piece.tensor].append(piece)

    @property
    def extras(self) -> Extras:
        return self._extras

    def pieces(self) -> tuple[Piece, ...]:
        return self._pieces

    def read(self, kind: StateKind, piece: Piece) -> torch.Tensor:
        parts = []
        for held in self._by_tensor[kind, piece.tensor]:
            common = held.interval.intersect(piece.interval)
            if common is not None:
                inside = common.shift(-held.interval.start)
                parts.append((common.start, self._values[kind, held][inside.start : inside.stop]))
        parts.sort(key=lambda part: part[0])
        if sum(values.numel() for _, values in parts) != piece.numel:
            raise KeyError(f"{kind} {piece} is not held")
        return parts[0][1] if len(parts) == 1 else torch.cat([values for _, values in parts])


class Combined:
    """Two sources of one step; where both have an element the first one gives it."""

    def __init__(self, first: Source, second: Source) -> None:
        self._sources = (first, second)

    @property
    def extras(self) -> Extras:
        return self._sources[0].extras

    def pieces(self) -> tuple[Piece, ...]:
        return merged(piece for source in self._sources for piece in source.pieces())

    def read(self, kind: StateKind, piece: Piece) -> torch.Tensor:
        first, second = self._sources
        ours = list(split(piece, first.pieces()))
        parts = [(part, first) for part in ours] + [(part, second) for part in _between(piece, ours)]
        parts.sort(key=lambda each: each[0])
        tensors = [source.read(kind, part) for part, source in parts]
        # One may be on a device and the other in host memory.
        return tensors[0] if len(tensors) == 1 else torch.cat([tensor.to(tensors[0].device) for tensor in tensors])


class EngineSource:
    """The values of an engine between two steps."""

    def __init__(self, engine: Engine, *, rank: int, skipped: int) -> None:
        self._engine = engine
        self._pieces = engine.layout().of(rank)
        self._skipped = skipped

    @property
    def extras(self) -> Extras:
        return Extras(scalars=self._engine.scalars(), buffers=self._engine.buffers(), skipped=self._skipped)

    def pieces(self) -> tuple[Piece, ...]:
        return self._pieces

    def read(self, kind: StateKind, piece: Piece) -> torch.Tensor:
        parts = [self._engine.export(kind, part) for part in split(piece, self._pieces)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _between(piece: Piece, taken: Iterable[Piece]) -> Iterator[Piece]:
    """What ascending parts of `piece` leave over."""
    start = piece.interval.start
    for part in taken:
        if start < part.interval.start:
            yield Piece(piece.tensor, Interval(start, part.interval.start))
        start = part.interval.stop
    if start < piece.interval.stop:
        yield Piece(piece.tensor, Interval(start, piece.interval.stop))


def split(piece: Piece, into: Iterable[Piece]) -> Iterator[Piece]:
    """The parts of `piece` along the borders of the pieces of a layout, in order."""
    commons = (other.interval.intersect(piece.interval) for other in into if other.tensor == piece.tensor)
    for interval in sorted(common for common in commons if common is not None):
        yield Piece(piece.tensor, interval)
