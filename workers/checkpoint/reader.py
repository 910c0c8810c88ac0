"""Resuming: each rank reads exactly the blocks that hold what it needs, and proves each before it uses it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from workers.checkpoint.differences import compare, is_weight, shapes_of
from workers.checkpoint.dtypes import torch_dtype
from workers.checkpoint.errors import CheckpointMismatch
from workers.checkpoint.extents import Deliver, extent, read_extents
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Want:
    """Elements of one saved tensor."""

    name: str
    interval: Interval
    deliver: Deliver


def read_into(
    engine: Engine,
    *,
    rank: int,
    manifest: Manifest,
    store: Store,
    allow_missing: bool = False,
    weights_only: bool = False,
) -> tuple[str, ...]:
    """Fill this rank's state, scalars and buffers, whatever world size, stage or engine wrote them.

    No collective: the caller agrees with the other ranks that all have read, then calls `engine.commit_load()`.
    `allow_missing` (fine-tuning): what only one side has stays as it is here, and is returned in words.
    `weights_only`: parameters and buffers; what the optimizer keeps, and the scalars, stay as they are here.
    Raises CheckpointMismatch with every difference before anything is changed; CheckpointDamaged naming the file,
    and then the state is undefined until an older checkpoint was read.
    """
    differences = compare(shapes_of(engine), manifest, weights_only=weights_only)
    if refused := differences.shapes + (() if allow_missing else differences.missing):
        raise CheckpointMismatch(step=manifest.step, differences=refused)
    staged = _staged(engine, manifest)
    by_file: dict[str, list[tuple[StoredPiece, _Want]]] = defaultdict(list)
    wants = (*_of_state(engine, rank, manifest), *_of_buffers(staged))
    for want in (want for want in wants if not weights_only or is_weight(want.name)):
        for piece in manifest.tensors[want.name].pieces:
            if piece.interval.intersect(want.interval):
                by_file[piece.file].append((piece, want))
    for name, pairs in sorted(by_file.items()):
        with opened(store, manifest, name) as file:
            places = data_places(file)
            extents = [
                extent(file, places, piece, want.interval, manifest.tensors[want.name].dtype, want.deliver)
                for piece, want in pairs
            ]
            read_extents(file, extents)
    _fill_buffers(engine, staged)
    if not weights_only:
        engine.load_scalars(_overlaid(engine.scalars(), manifest.scalars) if allow_missing else manifest.scalars)
    return differences.missing


def _fill_buffers(engine: Engine, staged: Mapping[str, Tensor]) -> None:
    for name, flat in staged.items():
        buffer = engine.buffers()[name]
        buffer.detach().copy_(flat.view(buffer.shape))


def _of_state(engine: Engine, rank: int, manifest: Manifest) -> Iterator[_Want]:
    tensors = engine.tensors()
    for piece in merged(engine.layout().of(rank)):
        for kind in kinds_of(engine, tensors[piece.tensor]):
            name = state_name(kind, piece.tensor)
            if name in manifest.tensors:
                deliver = partial(_load, engine, kind, piece.tensor)
                yield _Want(name=name, interval=piece.interval, deliver=deliver)


def _load(engine: Engine, kind: StateKind, tensor: str, interval: Interval, values: Tensor) -> None:
    engine.load(kind, Piece(tensor, interval), values)


def _staged(engine: Engine, manifest: Manifest) -> dict[str, Tensor]:
    """Room for every buffer as it was stored: the engine's own may be strided, or of another type by now."""
    stored = {name: manifest.tensors.get(buffer_name(name)) for name in engine.buffers()}
    return {
        name: torch.empty(tensor.numel, dtype=torch_dtype(tensor.dtype))
        for name, tensor in stored.items()
        if tensor is not None
    }


def _of_buffers(staged: Mapping[str, Tensor]) -> Iterator[_Want]:
    for name, flat in staged.items():
        yield _Want(name=buffer_name(name), interval=Interval(0, flat.numel()), deliver=partial(_stage, flat))


def _stage(flat: Tensor, interval: Interval, values: Tensor) -> None:
    flat[interval.start : interval.stop].copy_(values)


def _overlaid(present: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """What is stored, over what is here: a parameter that the checkpoint does not know keeps its count of steps."""
    both = {
        key: _overlaid(present[key], value) if _are_mappings(present.get(key), value) else value
        for key, value in stored.items()
    }
    return {**present, **both}


def _are_mappings(*values: object) -> bool:
    return all(isinstance(value, Mapping) for value in values)
