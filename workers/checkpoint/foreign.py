"""State that another program wrote, made into a checkpoint of ours: read tensor by tensor, written as any save is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from workers.checkpoint import claims, dtypes, gpt2_names
from workers.checkpoint.manifest import Manifest
from workers.checkpoint.parts import STATE_DTYPE, Part, numel, state_name
from workers.checkpoint.store import Store
from workers.checkpoint.writer import publish, write_rank
from workers.engine.states import StateKind
from workers.layout.interval import Interval
from workers.tensor_folder import NoTensors, shape_in, tensor_files


class ImportRefused(Exception):
    """The files are not what was said of them; the message names the file and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """What an import found. `model` as in a spec; `unused` are names that are no state of ours; `ties`: a second name
    of a parameter -> the one that it is kept under; `loss_scale`: of fp16, where it moves."""

    parts: tuple[Part, ...]
    steps: Mapping[str, int]
    unused: tuple[str, ...] = ()
    ties: Mapping[str, str] = field(default_factory=dict)
    loss_scale: float | None = None
    model: Any = None


def whole_part(name: str, shape: tuple[int, ...], dtype: str, read: Callable[[], Tensor]) -> Part:
    """A whole tensor as one part, in the type that it is kept in."""

    def values() -> Tensor:
        return read().to(dtypes.torch_dtype(dtype)).reshape(-1)

    return Part(name=name, shape=shape, dtype=dtype, interval=Interval(0, numel(shape)), values=values)


def adopt(store: Store, foreign: Foreign, *, job: str, step: int = 0, source: str) -> Manifest:
    """Write it as the checkpoint of `step` of `job`. Its parameters' steps that are not known count from zero."""
    claims.claim(store, job=job, attempt=0)
    report = write_rank(store, job=job, step=step, attempt=0, rank=0, world_size=1, parts=foreign.parts)
    master = f"{StateKind.MASTER}/"
    names = [part.name.removeprefix(master) for part in foreign.parts if part.name.startswith(master)]
    scalars: dict[str, Any] = {"steps": {name: foreign.steps.get(name, 0) for name in names}}
    if foreign.loss_scale is not None:
        scalars["loss_scale"] = {"value": foreign.loss_scale, "good_steps": 0, "patience": 1}
    return publish(
        store,
        job=job,
        step=step,
        attempt=0,
        samples=0,
        spec_digest="",
        reports=[report],
        scalars=scalars,
        extra={"imported_from": source, "model": foreign.model, "ties": dict(foreign.ties)},
    )


def from_hugging_face(folder: Path) -> Foreign:
    """Parameters of a folder with config and safetensors: a GPT-2 as our GPT, any other under the names it has."""
    try:
        where = tensor_files(folder)
    except NoTensors as error:
        raise ImportRefused(str(error)) from error
    config = json.loads((folder / "config.json").read_text()) if (folder / "config.json").is_file() else {}
    if config.get("model_type") != "gpt2":
        parts = tuple(_part(folder / file, name, name) for name, file in where.items())
        return Foreign(parts=parts, steps={})
    try:
        shape = gpt2_names.shape_of(config)
    except (ValueError, KeyError) as error:
        raise ImportRefused(f"{folder}: {error}; such a model trains as {{hf: ...}} or {{python: ...}}") from error
    renamed = gpt2_names.names_of(shape)
    if lacking := sorted(each.name for each in renamed.values() if each.name not in where):
        raise ImportRefused(f"{folder} lacks {', '.join(lacking[:5])}: give the whole folder")
    parts = tuple(
        _part(folder / where[theirs.name], theirs.name, ours, turned=theirs.turned) for ours, theirs in renamed.items()
    )
    known = {theirs.name for theirs in renamed.values()} | {gpt2_names.HEAD[1]}
    model = {
        "name": "gpt",
        "layers": shape.layers,
        "width": shape.width,
        "heads": shape.heads,
        "vocab": shape.vocab,
        "context": shape.context,
    }
    return Foreign(parts=parts, steps={}, unused=tuple(sorted(set(where) - known)), model=model)


def _part(file: Path, name: str, ours: str, *, turned: bool = False) -> Part:
    shape = shape_in(file, name)
    read = partial(_read, file, name, turned=turned)
    return whole_part(state_name(StateKind.MASTER, ours), shape[::-1] if turned else shape, STATE_DTYPE, read)


def _read(file: Path, name: str, *, turned: bool) -> torch.Tensor:
    with safe_open(file, framework="pt") as opened:
        values: torch.Tensor = opened.get_tensor(name)
    return values.t() if turned else values
