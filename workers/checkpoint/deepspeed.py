"""From a DeepSpeed ZeRO checkpoint, stages 1 to 3: the fp32 master values, the moments and what the model keeps.

Its form (`deepspeed.utils.zero_to_fp32` is its own reader): in `FOLDER/TAG/` every rank's file of optimizer states
holds flat vectors. At stages 1 and 2 the ranks' vectors of a parameter group, one after the other, are the group's
parameters in the order of `param_shapes`; at stage 3 each rank's vectors, one after the other, hold of every parameter
its n-th part, padded to equal parts. The moments lie as the values do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workers.checkpoint import dtypes
from workers.checkpoint.foreign import Foreign, ImportRefused, whole_part
from workers.checkpoint.parts import STATE_DTYPE, Part, buffer_name, state_name
from workers.checkpoint.torch_file import Opaque, read_torch_file
from workers.engine.states import StateKind

_OPTIMIZER_FILE = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")
MOMENTS = (StateKind.EXP_AVG, StateKind.EXP_AVG_SQ, StateKind.MOMENTUM, StateKind.SUM)
State = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Elements `start <= i < stop` of a rank's flat vector of a group."""

    rank: int
    group: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A trainable parameter: where its elements lie, in order."""

    name: str
    shape: tuple[int, ...]
    cuts: tuple[Cut, ...]


class ZeroFiles:
    """The files of one checkpoint; tensors in them are read when they are used."""

    def __init__(self, folder: Path) -> None:
        """Raises ImportRefused where it is no whole ZeRO checkpoint of plain data parallelism."""
        self._folder = folder
        self.optimizers = [_part_of(file, "optimizer_state_dict") for file in _optimizer_files(folder)]
        first = self.optimizers[0]
        self.stage = 3 if "fp32_flat_groups" in first else 2
        counts = first.get("partition_count", len(self.optimizers))
        expected = max(counts) if isinstance(counts, Sequence) else int(counts)
        if expected != len(self.optimizers):
            raise ImportRefused(f"{folder} has files of {len(self.optimizers)} ranks, {expected} wrote it: copy all")
        self.models = [read_torch_file(file) for file in self._model_files()]
        if "param_shapes" not in self.models[0]:
            raise ImportRefused(f"{folder}: the model's file lacks param_shapes, so DeepSpeed before 0.5 wrote it")

    @property
    def world_size(self) -> int:
        return len(self.optimizers)

    def flat(self, rank: int, group: int) -> Tensor:
        key = "fp32_flat_groups" if self.stage == 3 else "single_partition_of_fp32_groups"
        values: Tensor = self.optimizers[rank][key][group]
        return values

    def groups(self) -> int:
        return len(self.optimizers[0]["fp32_flat_groups" if self.stage == 3 else "single_partition_of_fp32_groups"])

    def inner(self, rank: int) -> State:
        """The state of the optimizer that ZeRO wraps, by group."""
        found = self.optimizers[rank]["optimizer_state_dict" if self.stage == 3 else "base_optimizer_state"]
        if not isinstance(found, Mapping) or "state" not in found:
            raise ImportRefused(f"{self._folder}: elastic_checkpoint was on; save again without it")
        return found

    def _model_files(self) -> list[Path]:
        ranks = range(self.world_size)
        names = [f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt" for rank in ranks]
        files = [self._folder / name for name in (names if self.stage == 3 else ["mp_rank_00_model_states.pt"])]
        if missing := [file.name for file in files if not file.is_file()]:
            raise ImportRefused(f"{self._folder} lacks {', '.join(missing)}: copy the whole folder")
        return files


def from_deepspeed(folder: Path, *, tag: str | None = None) -> Foreign:
    """The state in a checkpoint folder, read when it is written; `tag` None: the one that `latest` names.

    UNPICKLES, though no code of the files runs (`torch_file.py`): for trusted files. Raises ImportRefused.
    """
    files = ZeroFiles(_tagged(folder, tag))
    parameters = tuple(_parameters(files))
    parts = [*_trainable(files, parameters), *_frozen(files, parameters), *_buffers(files.models[0])]
    return Foreign(
        parts=tuple(parts),
        steps=_steps(files, parameters),
        unused=_unused(files),
        ties=dict(files.models[0].get("shared_params") or {}),
        loss_scale=_loss_scale(files.optimizers[0]),
    )


def _tagged(folder: Path, tag: str | None) -> Path:
    latest = folder / "latest"
    if tag is None and latest.is_file():
        tag = latest.read_text().strip()
    place = folder / tag if tag is not None else folder
    if not place.is_dir():
        raise ImportRefused(f"{place} is no folder: name a tag that {folder} has")
    return place


def _optimizer_files(folder: Path) -> list[Path]:
    """By rank."""
    if odd := sorted(path.name for path in folder.iterdir() if re.match(r"layer_|expert_", path.name)):
        raise ImportRefused(f"{folder} has {odd[0]}: pipelines and experts are not read, plain data parallelism is")
    found = {path: match for path in folder.iterdir() if (match := _OPTIMIZER_FILE.fullmatch(path.name))}
    if any(int(match[2]) for match in found.values()):
        raise ImportRefused(f"{folder} is of tensor parallelism (mp_rank_01): merge it with DeepSpeed first")
    by_rank = {int(match[1]): path for path, match in found.items()}
    if not by_rank:
        raise ImportRefused(f"{folder} has no *_optim_states.pt: it is no ZeRO checkpoint of stage 1, 2 or 3")
    if lacking := sorted(set(range(max(by_rank) + 1)) - set(by_rank)):
        raise ImportRefused(f"{folder} lacks the optimizer states of rank {lacking[0]}: copy the whole folder")
    return [by_rank[rank] for rank in sorted(by_rank)]


def _part_of(file: Path, key: str) -> State:
    document = read_torch_file(file)
    found = document.get(key) if isinstance(document, Mapping) else None
    if not isinstance(found, Mapping):
        raise ImportRefused(f"{file} holds no {key}: it is no file of a ZeRO optimizer")
    return found


# ---- where a parameter's elements lie --------------------------------------------------------------------------------


def _parameters(files: ZeroFiles) -> Iterator[Parameter]:
    shapes = files.models[0]["param_shapes"]
    by_group: list[Mapping[str, Any]] = [shapes] if isinstance(shapes, Mapping) else list(shapes)
    yield from _at_stage_3(files, by_group) if files.stage == 3 else _at_stage_2(files, by_group)


def _at_stage_2(files: ZeroFiles, by_group: Sequence[Mapping[str, Any]]) -> Iterator[Parameter]:
    paddings = files.optimizers[0].get("param_alignment_paddings")
    for group, shapes in enumerate(by_group):
        sizes = [files.flat(rank, group).numel() for rank in range(files.world_size)]
        place = 0
        for number, (name, shape) in enumerate(shapes.items()):
            numel = math.prod(shape)
            cuts = [
                Cut(rank=rank, group=group, start=start, stop=stop)
                for rank, start, stop in _within(sizes, place, place + numel)
            ]
            yield _whole(name, shape, cuts)
            place += numel + (paddings[group][number] if paddings else 0)


def _at_stage_3(files: ZeroFiles, by_group: Sequence[Mapping[str, Any]]) -> Iterator[Parameter]:
    sizes = [files.flat(0, group).numel() for group in range(files.groups())]
    place = 0
    for name, shape in (item for shapes in by_group for item in shapes.items()):
        part = -(-math.prod(shape) // files.world_size)
        cuts = [
            Cut(rank=rank, group=group, start=start, stop=stop)
            for rank in range(files.world_size)
            for group, start, stop in _within(sizes, place, place + _share(math.prod(shape), part, rank))
        ]
        yield _whole(name, shape, cuts)
        place += part


def _share(numel: int, part: int, rank: int) -> int:
    """Of `numel` elements in equal parts: what of the rank's is no padding."""
    return max(0, min(part, numel - rank * part))


def _within(sizes: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Vectors one after the other, and the elements `start <= i < stop` of all: (vector, start, stop) inside each."""
    place = 0
    for number, size in enumerate(sizes):
        first, last = max(start, place), min(stop, place + size)
        if first < last:
            yield number, first - place, last - place
        place += size


def _whole(name: str, shape: Sequence[int], cuts: Sequence[Cut]) -> Parameter:
    found = sum(cut.stop - cut.start for cut in cuts)
    if found != math.prod(shape):
        hint = "if states rested on NVMe, save with DeepSpeed's use_node_local_storage off"
        raise ImportRefused(f"{name} {list(shape)}: the files hold {found} of its {math.prod(shape)} elements; {hint}")
    return Parameter(name=name, shape=tuple(shape), cuts=tuple(cuts))


# ---- what is taken ---------------------------------------------------------------------------------------------------


def _trainable(files: ZeroFiles, parameters: Sequence[Parameter]) -> Iterator[Part]:
    held = {key for state in files.inner(0)["state"].values() for key in state}
    for each in parameters:
        read = partial(_joined, each, files.flat)
        yield whole_part(state_name(StateKind.MASTER, each.name), each.shape, STATE_DTYPE, read)
        for kind in (kind for kind in MOMENTS if kind in held):
            moments = partial(_joined, each, partial(_moment, files, kind))
            yield whole_part(state_name(kind, each.name), each.shape, STATE_DTYPE, moments)


def _joined(parameter: Parameter, flat: Callable[[int, int], Tensor]) -> Tensor:
    if not parameter.cuts:
        return torch.empty(0)
    return torch.cat([flat(cut.rank, cut.group)[cut.start : cut.stop] for cut in parameter.cuts])


def _moment(files: ZeroFiles, kind: StateKind, rank: int, group: int) -> Tensor:
    values: Tensor = files.inner(rank)["state"][group][kind]
    return values


def _frozen(files: ZeroFiles, parameters: Sequence[Parameter]) -> Iterator[Part]:
    """In fragments of their own, or (stage 1) among the model's whole tensors alone."""
    model = files.models[0]
    shapes = model.get("frozen_param_shapes") or {}
    for name, shape in shapes.items():
        fragments = [each["frozen_param_fragments"][name].reshape(-1) for each in files.models]
        read = partial(_trimmed, fragments, math.prod(shape))
        yield whole_part(state_name(StateKind.MASTER, name), tuple(shape), STATE_DTYPE, read)
    if files.stage == 3:
        return
    known = {each.name for each in parameters} | {*shapes, *(model.get("buffer_names") or ())}
    known |= {*(model.get("shared_params") or {})}
    for name, values in ((name, values) for name, values in (model["module"] or {}).items() if name not in known):
        yield whole_part(state_name(StateKind.MASTER, name), tuple(values.shape), STATE_DTYPE, values.clone)


def _trimmed(fragments: Sequence[Tensor], numel: int) -> Tensor:
    return torch.cat(list(fragments))[:numel]


def _buffers(model: State) -> Iterator[Part]:
    for name in model.get("buffer_names") or ():
        if (values := (model["module"] or {}).get(name)) is not None:
            yield whole_part(buffer_name(name), tuple(values.shape), dtypes.name_of(values.dtype), values.clone)


def _steps(files: ZeroFiles, parameters: Sequence[Parameter]) -> dict[str, int]:
    """The optimizer's own count, else the job's updates."""
    inner, model = files.inner(0), files.models[0]
    updates = int(model.get("global_steps", 0)) - int(model.get("skipped_steps", 0))
    steps = {}
    for each in parameters:
        group = each.cuts[0].group if each.cuts else 0
        of_group = inner["param_groups"][group] if group < len(inner["param_groups"]) else {}
        found = inner["state"].get(group, {}).get("step", of_group.get("step", updates))
        steps[each.name] = updates if isinstance(found, Opaque) else int(found)
    return steps


def _loss_scale(states: State) -> float | None:
    """Of fp16; bf16 and fp32 have one that never moves."""
    scaler = states.get("loss_scaler")
    found = scaler.fields.get("cur_scale") if isinstance(scaler, Opaque) and states.get("dynamic_loss_scale") else None
    return None if found is None else float(found)


def _unused(files: ZeroFiles) -> tuple[str, ...]:
    """What has no place in ours: moments that no optimizer here keeps, and the schedule, which is a spec's."""
    known = {*MOMENTS, "step"}
    odd = {f"optimizer.{key}" for state in files.inner(0)["state"].values() for key in state if key not in known}
    return tuple(sorted(odd | ({"lr_scheduler"} if files.models[0].get("lr_scheduler") else set())))
