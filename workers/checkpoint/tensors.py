"""Whole tensors out of a checkpoint, one at a time, whoever wrote their pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from workers.checkpoint.blocks import VerifiedFile
from workers.checkpoint.dtypes import torch_dtype
from workers.checkpoint.extents import extent, read_extents
from workers.checkpoint.manifest import Manifest, StoredPiece
from workers.checkpoint.store import Store
from workers.checkpoint.tensor_file import data_places
from workers.checkpoint.verify import opened
from workers.layout.interval import Interval

# Files held open at once; each keeps a block in memory.
OPEN_FILES = 32


class TensorReader:
    """Keeps files open between tensors. Raises CheckpointDamaged naming the file."""

    def __init__(self, store: Store, manifest: Manifest, files: ExitStack) -> None:
        self._store = store
        self._manifest = manifest
        self._files = files
        self._open: dict[str, tuple[VerifiedFile, Mapping[str, tuple[int, int]]]] = {}

    def read(self, name: str) -> Tensor:
        """The tensor in its shape and stored type, in memory of its own."""
        stored = self._manifest.tensors[name]
        flat = torch.empty(stored.numel, dtype=torch_dtype(stored.dtype))

        def deliver(interval: Interval, values: Tensor) -> None:
            flat[interval.start : interval.stop].copy_(values)

        for piece in stored.pieces:
            if piece.interval.numel:
                file, places = self._file(piece)
                read_extents(file, [extent(file, places, piece, piece.interval, stored.dtype, deliver)])
        return flat.view(stored.shape)

    def _file(self, piece: StoredPiece) -> tuple[VerifiedFile, Mapping[str, tuple[int, int]]]:
        if piece.file not in self._open:
            if len(self._open) >= OPEN_FILES:
                self._files.close()
                self._open.clear()
            file = self._files.enter_context(opened(self._store, self._manifest, piece.file))
            self._open[piece.file] = (file, data_places(file))
        return self._open[piece.file]


@contextmanager
def reading(store: Store, manifest: Manifest) -> Iterator[TensorReader]:
    with ExitStack() as files:
        yield TensorReader(store, manifest, files)
