"""Lays state out as DeepSpeed documents its ZeRO checkpoints: what an import is to find, without DeepSpeed itself."""

from __future__ import annotations

import math
import shutil
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

State = Mapping[str, Tensor]  # name -> whole values
KINDS = ("exp_avg", "exp_avg_sq")
GROUPS = (("table", "weight", "nothing"), ("bias", "scale"))
SHAPES = {"table": (7, 5), "weight": (3, 11), "nothing": (0, 4), "bias": (5,), "scale": (), "frozen": (5,)}
STEP = 9


class Intruder:
    """What a file from a stranger could hold: made anew by a call of `shutil.rmtree`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return shutil.rmtree, (str(self._folder),)


def whole(kind: str, name: str) -> Tensor:
    generator = torch.Generator().manual_seed(sum(f"{kind}/{name}".encode()))
    return torch.randn(SHAPES[name], generator=generator)


def lay_out(
    folder: Path, *, stage: int, world: int, monkeypatch: pytest.MonkeyPatch, sub_groups: Sequence[Sequence[str]] = ()
) -> Path:
    """A checkpoint under the tag `global_step9`; `sub_groups`: how stage 3 cuts the optimizer's work."""
    place = folder / "global_step9"
    place.mkdir(parents=True)
    (folder / "latest").write_text("global_step9")
    groups = (sub_groups or GROUPS) if stage == 3 else GROUPS
    for rank in range(world):
        flat = {kind: [_flat(kind, names, stage, rank, world) for names in groups] for kind in ("master", *KINDS)}
        inner = {
            "state": {g: {kind: flat[kind][g] for kind in KINDS} | {"step": STEP} for g in range(len(groups))},
            "param_groups": [{"lr": 1e-3, "params": [g]} for g in range(len(groups))],
        }
        states = {
            "partition_count": world if stage == 3 else [world] * len(groups),
            "loss_scaler": _foreign_object(monkeypatch),
            "dynamic_loss_scale": True,
            "client_state": Intruder(folder),
        }
        states |= _of_stage_3(flat, inner) if stage == 3 else _of_stage_2(flat, inner, stage, rank, world)
        torch.save({"optimizer_state_dict": states}, place / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
        if stage == 3 or rank == 0:
            name = f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt" if stage == 3 else "mp_rank_00_model_states.pt"
            torch.save(_model(groups, stage, rank, world), place / name)
    return folder


def _of_stage_3(flat: Mapping[str, list[Tensor]], inner: Mapping[str, Any]) -> dict[str, Any]:
    return {"zero_stage": 3, "fp32_flat_groups": flat["master"], "optimizer_state_dict": inner}


def _of_stage_2(
    flat: Mapping[str, list[Tensor]], inner: Mapping[str, Any], stage: int, rank: int, world: int
) -> dict[str, Any]:
    """Its values are saved without the padding at the end, its moments with it."""
    lean = []
    for names, values in zip(GROUPS, flat["master"], strict=True):
        left = max(0, sum(math.prod(SHAPES[name]) for name in names) - rank * values.numel())
        lean.append(values[:left].clone())
    return {"zero_stage": stage, "single_partition_of_fp32_groups": lean, "base_optimizer_state": inner}


def _flat(kind: str, names: Sequence[str], stage: int, rank: int, world: int) -> Tensor:
    values = [whole(kind, name).reshape(-1) for name in names]
    if stage == 3:
        return torch.cat([_padded(each, world).chunk(world)[rank] if each.numel() else each for each in values])
    return _padded(torch.cat(values), 2 * world).view(world, -1)[rank].clone()


def _padded(values: Tensor, multiple: int) -> Tensor:
    return torch.cat([values, torch.full((-values.numel() % multiple,), math.nan)])


def _model(groups: Sequence[Sequence[str]], stage: int, rank: int, world: int) -> dict[str, Any]:
    frozen = whole("master", "frozen")
    module = {"seen": torch.tensor(2**40 + 1), "mean": torch.arange(3, dtype=torch.bfloat16)}
    if stage < 3:
        module |= {name: whole("master", name).bfloat16() for names in groups for name in names}
        module |= {"head": module["table"], "frozen": frozen}
    fragments = {"frozen": _padded(frozen, world).chunk(world)[rank] if stage == 3 else frozen}
    return {
        "module": module,
        "buffer_names": ["seen", "mean"],
        "param_shapes": [OrderedDict((name, torch.Size(SHAPES[name])) for name in names) for names in groups],
        # Stage 1 leaves them out.
        "frozen_param_shapes": {"frozen": torch.Size(SHAPES["frozen"])} if stage > 1 else None,
        "frozen_param_fragments": fragments if stage > 1 else None,
        "shared_params": {"head": "table"},
        "global_steps": STEP + 1,
        "skipped_steps": 1,
        "lr_scheduler": {"last_batch_iteration": 9},
    }


def _foreign_object(monkeypatch: pytest.MonkeyPatch) -> object:
    """Of a module that is gone when the file is read."""
    module = ModuleType("deepspeed_of_old")
    scaler = type("LossScaler", (), {"__module__": module.__name__})
    vars(module)["LossScaler"] = scaler
    monkeypatch.setitem(sys.modules, module.__name__, module)
    made = scaler()
    made.cur_scale = 4096.0
    return made
