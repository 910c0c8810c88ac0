"""An engine that only holds state: export and load of the protocol over plain tensors, under any layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from workers.engine.states import StateKind, TensorMeta
from workers.layout.interval import Interval
from workers.layout.layout import Layout, Piece

KINDS = (StateKind.MASTER, StateKind.EXP_AVG, StateKind.EXP_AVG_SQ)

Rule = Callable[[dict[str, int], int], Layout[int]]


class MemoryEngine:
    """One rank. What it does not hold is NaN, so that reading or writing elsewhere shows."""

    def __init__(
        self,
        metas: Mapping[str, TensorMeta],
        *,
        rule: Rule,
        rank: int,
        world_size: int,
        kinds: tuple[StateKind, ...] = KINDS,
        buffers: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self._metas = dict(metas)
        self._kinds = kinds
        self._layout = rule({name: meta.numel for name, meta in metas.items()}, world_size)
        self._mine = self._layout.of(rank)
        self._buffers = {name: buffer.clone() for name, buffer in (buffers or {}).items()}
        self._scalars: dict[str, Any] = {}
        self._flat = {
            (kind, name): torch.full((meta.numel,), math.nan) for name, meta in metas.items() for kind in kinds
        }
        self.exported: list[tuple[StateKind, Piece]] = []

    def fill(self, seed: int) -> None:
        """The values of the whole model under a seed, on the pieces that this rank holds."""
        for kind, name in self._flat:
            whole = whole_values(kind, name, self._metas[name].numel, seed)
            for piece in self._mine:
                if piece.tensor == name:
                    self._view(kind, piece).copy_(whole[piece.interval.start : piece.interval.stop])

    def tensors(self) -> Mapping[str, TensorMeta]:
        return self._metas

    def kinds(self) -> tuple[StateKind, ...]:
        return self._kinds

    def layout(self) -> Layout[int]:
        return self._layout

    def export(self, kind: StateKind, piece: Piece) -> torch.Tensor:
        self.exported.append((kind, piece))
        return self._view(kind, piece)

    def load(self, kind: StateKind, piece: Piece, values: torch.Tensor) -> None:
        self._view(kind, piece).copy_(values)

    def commit_load(self) -> None:
        """Nothing is derived from the state here."""

    def scalars(self) -> dict[str, Any]:
        return dict(self._scalars)

    def load_scalars(self, scalars: Mapping[str, Any]) -> None:
        self._scalars = dict(scalars)

    def buffers(self) -> Mapping[str, torch.Tensor]:
        return self._buffers

    def state(self) -> dict[tuple[StateKind, str], torch.Tensor]:
        """What this rank holds, NaN elsewhere."""
        return self._flat

    def _view(self, kind: StateKind, piece: Piece) -> torch.Tensor:
        inside = [
            mine for mine in self._mine if mine.tensor == piece.tensor and _contains(mine.interval, piece.interval)
        ]
        assert inside or not piece.numel, f"{piece} is not this rank's"
        return self._flat[kind, piece.tensor][piece.interval.start : piece.interval.stop]


def whole_values(kind: StateKind, name: str, numel: int, seed: int) -> torch.Tensor:
    """The same on every rank, another for each kind, name and seed."""
    generator = torch.Generator().manual_seed(seed * 1000 + sum(f"{kind}{name}".encode()))
    return torch.randn(numel, generator=generator)


def _contains(outer: Interval, inner: Interval) -> bool:
    return outer.start <= inner.start and inner.stop <= outer.stop
