"""Claim: `compile: true` changes kernels and no curve, with either activation checkpointing, from a meta start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import torch._dynamo.utils
import torch._inductor.config
from torch.utils import cpp_extension

from service.domain.spec import JobSpec
from tests.claims.ranks import on_ranks, world_group
from tests.claims.training import SHAPE, fsdp_engine, plain_curve, train_step, zero_engine
from workers.worker.assemble import build_model, draw_model

STEPS = 3
MODEL = {"layers": 3, "width": SHAPE.width, "heads": SHAPE.heads, "vocab": SHAPE.vocab, "context": SHAPE.context}
CASES: list[tuple[str, int, bool | str]] = [("zero", 0, False), ("zero", 3, False), ("zero", 3, True)]
CASES += [("zero", 3, "reentrant"), ("fsdp", 3, False)]


def _spec(*, compiled: bool, checkpointing: bool | str = False) -> JobSpec:
    training = {"seq_len": SHAPE.context, "activation_checkpointing": checkpointing}
    return JobSpec.model_validate({"model": MODEL, "compile": compiled, "training": training})


def _curves(rank: int, world: int, folder: Path) -> tuple[list[list[tuple[float, float]]], int]:
    # No pool of processes: this one may have no children. Nothing that an earlier run compiled.
    torch._inductor.config.compile_threads = 1
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache")
    cpp_extension.TORCH_LIB_PATH = str(folder / "my project" / "lib")
    curves = []
    for name, stage, checkpointing in CASES:
        drawn = draw_model(_spec(compiled=True, checkpointing=checkpointing))
        build: Any = zero_engine if name == "zero" else fsdp_engine
        engine = build(drawn.model, world_group(), stage=stage)
        drawn.start(engine, rank=rank)
        curves.append([train_step(engine, step, rank=rank, world=world) for step in range(1, STEPS + 1)])
        assert engine.footprint().gathered_bytes == 0
    return curves, torch._dynamo.utils.counters["stats"]["unique_graphs"]


def test_compiled_units_follow_plain_torch_in_a_folder_with_a_space(tmp_path: Path) -> None:
    (tmp_path / "my project").symlink_to(Path(torch.__file__).parent)
    expected = torch.tensor(plain_curve(build_model(_spec(compiled=False)), STEPS))
    for curves, graphs in on_ranks(2, _curves, tmp_path):
        assert 1 <= graphs <= 2 * len(CASES), "three blocks of one kind share their kernels"
        torch.testing.assert_close(torch.tensor(curves), expected.expand(len(CASES), -1, -1), rtol=1e-5, atol=1e-6)
