"""To and from torch's distributed checkpoint (DCP), the form that FSDP2 programs read and write.

Keys as `torch.distributed.checkpoint.state_dict` has them: `model.NAME`, `optim.state.NAME.exp_avg`, `.exp_avg_sq`
(or what another optimizer keeps), `.step`. DCP's own metadata is a pickle that torch reads and writes: reading one is
for files that one trusts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.planner import WriteItem
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from workers.checkpoint import dtypes
from workers.checkpoint.foreign import Foreign, whole_part
from workers.checkpoint.manifest import Manifest
from workers.checkpoint.parts import BUFFER, STATE_DTYPE, Part, buffer_name, state_name
from workers.checkpoint.store import Store
from workers.checkpoint.tensors import TensorReader, reading
from workers.engine.states import StateKind

MODEL, OPTIMIZER, STEP = "model.", "optim.state.", "step"
MOMENTS = frozenset(StateKind) - {StateKind.PARAM, StateKind.GRAD, StateKind.MASTER}


def to_dcp(store: Store, manifest: Manifest, folder: Path) -> tuple[str, ...]:
    """Write `folder`, one tensor in memory at a time; returns the names of its files."""
    saved_by_key = _keys(manifest)
    steps: Mapping[str, int] = manifest.scalars.get("steps", {})
    state: dict[str, Tensor] = {
        key: torch.empty(
            manifest.tensors[saved].shape, dtype=dtypes.torch_dtype(manifest.tensors[saved].dtype), device="meta"
        )
        for key, saved in saved_by_key.items()
    }
    state |= {f"{OPTIMIZER}{name}.{STEP}": torch.tensor(float(step)) for name, step in steps.items()}
    with reading(store, manifest) as reader:
        planner = _Streaming(reader, saved_by_key)
        writer = FileSystemWriter(folder, single_file_per_rank=True, thread_count=1)
        save(state, storage_writer=writer, planner=planner, no_dist=True)
    return tuple(sorted(path.name for path in folder.iterdir()))


def from_dcp(
    folder: Path,
    *,
    buffers: Collection[str] = (),
    model_prefix: str = MODEL,
    optimizer_prefix: str = OPTIMIZER,
) -> Foreign:
    """The state in a DCP folder, read when it is written. Unpickles the folder's metadata: only for trusted files.

    DCP does not tell buffers from parameters: floating ones are named by the caller. It has a tied parameter under each
    of its names: one without optimizer state that equals a trained one bit by bit is a second name of it.
    """
    metadata = FileSystemReader(folder).read_metadata().state_dict_metadata
    tensors = {key: entry for key, entry in metadata.items() if isinstance(entry, TensorStorageMetadata)}
    named = tuple(_named(tensors, model_prefix, optimizer_prefix))
    ties = _ties(folder, tensors, named)
    parts: list[Part] = []
    steps: dict[str, int] = {}
    for key, name, kind in named:
        read = partial(_loaded, folder, key, tensors[key])
        if name in ties:
            continue
        if kind is None:
            steps[name] = int(read().item())
        elif name in buffers or not tensors[key].properties.dtype.is_floating_point:
            dtype = dtypes.name_of(tensors[key].properties.dtype)
            parts.append(whole_part(buffer_name(name), tuple(tensors[key].size), dtype, read))
        else:
            parts.append(whole_part(state_name(kind, name), tuple(tensors[key].size), STATE_DTYPE, read))
    unused = tuple(sorted(set(metadata) - {key for key, *_ in named}))
    return Foreign(parts=tuple(parts), steps=steps, unused=unused, ties=ties)


class _Streaming(DefaultSavePlanner):
    """Knows shapes alone until the writer asks for a tensor."""

    def __init__(self, reader: TensorReader, saved_by_key: Mapping[str, str]) -> None:
        super().__init__()
        self._reader = reader
        self._saved_by_key = saved_by_key

    def resolve_data(self, write_item: WriteItem) -> Any:
        saved = self._saved_by_key.get(write_item.index.fqn)
        return super().resolve_data(write_item) if saved is None else self._reader.read(saved)


def _keys(manifest: Manifest) -> dict[str, str]:
    """DCP's key -> our saved name; tied parameters under each of their names."""
    ties: Mapping[str, str] = manifest.extra.get("ties", {})
    keys: dict[str, str] = {}
    for saved in manifest.tensors:
        kind, _, name = saved.partition("/")
        if kind in (StateKind.MASTER, BUFFER):
            keys[f"{MODEL}{name}"] = saved
        else:
            keys[f"{OPTIMIZER}{name}.{kind}"] = saved
    return keys | {f"{MODEL}{alias}": state_name(StateKind.MASTER, name) for alias, name in ties.items()}


def _named(
    keys: Sequence[str] | Mapping[str, Any], model_prefix: str, optimizer_prefix: str
) -> Iterator[tuple[str, str, StateKind | None]]:
    """(key, parameter, kind); kind None: its count of steps."""
    for key in keys:
        if key.startswith(optimizer_prefix):
            name, _, last = key.removeprefix(optimizer_prefix).rpartition(".")
            if last in MOMENTS:
                yield key, name, StateKind(last)
            elif last == STEP:
                yield key, name, None
        elif key.startswith(model_prefix):
            yield key, key.removeprefix(model_prefix), StateKind.MASTER


def _ties(
    folder: Path, tensors: Mapping[str, TensorStorageMetadata], named: Sequence[tuple[str, str, StateKind | None]]
) -> dict[str, str]:
    """Second name -> the one with the optimizer's state."""
    trained = {name for _, name, kind in named if kind in MOMENTS}
    weights = {name: key for key, name, kind in named if kind is StateKind.MASTER}
    ties: dict[str, str] = {}
    for alias in weights.keys() - trained:
        for name in weights.keys() & trained:
            mine, other = weights[alias], weights[name]
            if tensors[mine].size == tensors[other].size and torch.equal(
                _loaded(folder, mine, tensors[mine]), _loaded(folder, other, tensors[other])
            ):
                ties[alias] = name
    return ties


def _loaded(folder: Path, key: str, entry: TensorStorageMetadata) -> Tensor:
    into = torch.empty(entry.size, dtype=entry.properties.dtype)
    load({key: into}, checkpoint_id=folder, no_dist=True)
    return into
