"""A checkpoint as others read it: a Hugging Face folder, or torch's distributed checkpoint.

Tensor by tensor: neither the model nor a file of it is ever whole in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from service.domain.presets import GptShape
from workers.checkpoint import gpt2_names
from workers.checkpoint.dtypes import itemsize, torch_dtype
from workers.checkpoint.manifest import Manifest
from workers.checkpoint.parts import BUFFER, numel
from workers.checkpoint.store import LocalStore, Store
from workers.checkpoint.tensor_file import encode_header, lay_out
from workers.checkpoint.tensors import TensorReader, reading
from workers.engine.states import StateKind

SHARD_BYTES = 5 << 30
INDEX = "model.safetensors.index.json"


class ExportRefused(Exception):
    """The checkpoint cannot be written in the form that was asked for; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A tensor of the exported model, read when it is written."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    read: Callable[[TensorReader], Tensor]

    @property
    def size_bytes(self) -> int:
        return numel(self.shape) * itemsize(self.dtype)


def to_hugging_face(
    store: Store,
    manifest: Manifest,
    folder: Path,
    *,
    dtype: str = "float32",
    average: bool = False,
    shard_bytes: int = SHARD_BYTES,
) -> tuple[str, ...]:
    """Write `folder`, which has no such files yet; returns their names, `config.json` the last.

    Our GPT becomes a GPT-2 that transformers loads; any other model keeps its own names, for `load_state_dict`.
    `average`: the average of the weights in place of the weights.
    """
    source = _source(manifest, average=average)
    shape = gpt2_names.described(manifest.extra.get("model"))
    tensors = as_gpt2(manifest, shape, dtype, source) if shape is not None else as_it_is(manifest, dtype, source)
    config = gpt2_names.config(shape) if shape is not None else {}
    target = LocalStore(folder)
    shards = _shards(tensors, shard_bytes)
    names = _shard_names(len(shards))
    if taken := sorted({*names, INDEX, "config.json"} & {*target.names("")}):
        raise ExportRefused(f"{folder} has {', '.join(taken)} already; choose an empty folder")
    with reading(store, manifest) as reader:
        for name, shard in zip(names, shards, strict=True):
            _write_shard(target, name, shard, reader)
    if len(names) > 1:
        target.put(INDEX, _json(_index(names, shards)))
        names = (*names, INDEX)
    origin = {"job": manifest.job, "step": manifest.step} | ({"weights": "average"} if average else {})
    target.put("config.json", _json({**config, "torch_dtype": dtype, "elastane": origin}))
    return (*names, "config.json")


def as_gpt2(manifest: Manifest, shape: GptShape, dtype: str, source: Mapping[str, str]) -> list[Outgoing]:
    """With the tied head under its own name too: transformers and a strict `load_state_dict` both take it."""
    renamed = gpt2_names.names_of(shape)
    if set(source) != set(renamed):
        odd = sorted(set(source) ^ set(renamed))
        raise ExportRefused(f"the checkpoint is not of the model that it names ({odd[:5]}); export a whole one")
    tied, head = gpt2_names.HEAD
    found = [
        _outgoing(manifest, source[name], theirs.name, dtype, turned=theirs.turned) for name, theirs in renamed.items()
    ]
    return [*found, _outgoing(manifest, source[tied], head, dtype)]


def as_it_is(manifest: Manifest, dtype: str, source: Mapping[str, str]) -> list[Outgoing]:
    """Parameters, tied ones under each of their names, and buffers in the types they have."""
    ties: Mapping[str, str] = manifest.extra.get("ties", {})
    found = [_outgoing(manifest, saved, name, dtype) for name, saved in source.items()]
    for name, stored in manifest.tensors.items():
        kind, _, plain = name.partition("/")
        if kind == BUFFER:
            read = partial(_read, name=name, dtype=stored.dtype, turned=False)
            found.append(Outgoing(name=plain, shape=stored.shape, dtype=stored.dtype, read=read))
    return [*found, *(_outgoing(manifest, source[name], alias, dtype) for alias, name in ties.items())]


def _source(manifest: Manifest, *, average: bool) -> dict[str, str]:
    """Parameter -> the saved tensor that is written for it; a frozen one has no average and needs none."""
    kinds = (StateKind.MASTER, StateKind.EMA) if average else (StateKind.MASTER,)
    found: dict[str, str] = {}
    for kind in kinds:
        saved = [name for name in manifest.tensors if name.startswith(f"{kind}/")]
        if not saved and kind is StateKind.EMA:
            raise ExportRefused("the checkpoint has no average of the weights; train with training.ema_decay")
        found |= {name.removeprefix(f"{kind}/"): name for name in saved}
    return found


def _outgoing(manifest: Manifest, saved: str, there: str, dtype: str, *, turned: bool = False) -> Outgoing:
    shape = manifest.tensors[saved].shape
    read = partial(_read, name=saved, dtype=dtype, turned=turned)
    return Outgoing(name=there, shape=shape[::-1] if turned else shape, dtype=dtype, read=read)


def _read(reader: TensorReader, *, name: str, dtype: str, turned: bool) -> Tensor:
    values = reader.read(name).to(torch_dtype(dtype))
    return values.t().contiguous() if turned else values


def _shards(tensors: Sequence[Outgoing], shard_bytes: int) -> list[list[Outgoing]]:
    shards: list[list[Outgoing]] = [[]]
    for tensor in tensors:
        if shards[-1] and sum(each.size_bytes for each in shards[-1]) + tensor.size_bytes > shard_bytes:
            shards.append([])
        shards[-1].append(tensor)
    return shards


def _shard_names(count: int) -> tuple[str, ...]:
    if count == 1:
        return ("model.safetensors",)
    return tuple(f"model-{index:05d}-of-{count:05d}.safetensors" for index in range(1, count + 1))


def _write_shard(target: LocalStore, name: str, shard: Sequence[Outgoing], reader: TensorReader) -> None:
    entries = lay_out([(tensor.name, tensor.dtype, tensor.shape) for tensor in shard])
    by_name = {tensor.name: tensor for tensor in shard}
    with target.create(name) as sink:
        sink.write(memoryview(encode_header(entries, {"format": "pt"})))
        for entry in entries:
            values = by_name[entry.key].read(reader)
            sink.write(values.reshape(-1).view(torch_dtype("uint8")).numpy().data)


def _index(names: Sequence[str], shards: Sequence[Sequence[Outgoing]]) -> dict[str, Any]:
    where = {tensor.name: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
    total = sum(tensor.size_bytes for shard in shards for tensor in shard)
    return {"metadata": {"total_size": total}, "weight_map": where}


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
