"""Claim: what the plan says of each kind of memory is what a rank measures, within 5 %, for any source of a model."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

from benchmarks import planner
from service.domain.deviation import compared
from service.domain.parsing import parse_spec
from service.domain.spec import JobSpec, WorkerBounds
from tests.claims.ranks import on_ranks, world_group
from workers.engine.protocol import Engine
from workers.worker import probes
from workers.worker.assemble import build_engine, build_model
from workers.worker.prediction import predicted

CPU = torch.device("cpu")
GPT = {"model": {"name": "gpt", "layers": 3, "width": 128, "heads": 4, "vocab": 256, "context": 64}}
OURS = {**GPT, "training": {"batch_size": 4, "micro_batch_size": 2, "seq_len": 64}}
MODELS = "benchmarks.planner_models"
USERS = "tests.claims.test_predictions_are_measured:users"


def users(*, frozen: str = "") -> torch.nn.Module:
    """Tied ends; `frozen`: a part of each block."""
    model = build_model(parse_spec(GPT))
    for block in model.get_submodule("blocks").children():
        if frozen:
            block.get_submodule(frozen).requires_grad_(False)
    return model


def _kinds(rank: int, world: int, documents: list[dict[str, Any]]) -> list[tuple[str, dict[str, tuple[int, int]]]]:
    return [_kinds_of(parse_spec(document), world) for document in documents]


def _kinds_of(spec: JobSpec, world: int) -> tuple[str, dict[str, tuple[int, int]]]:
    model = build_model(spec)
    meter = probes.ActivationMeter(model)
    with TemporaryDirectory() as folder:
        engine = build_engine(model, world_group(), spec, CPU, folder=Path(folder))
        for _ in range(2):
            _train(engine, spec, meter)
        measured = probes.memory(engine, CPU, activations_bytes=meter.peak_bytes)
        told = {**measured, **predicted(spec, engine, model, CPU, world_size=world)}
    kinds = {name[4:-6]: int(value) for name, value in told.items() if name.startswith("mem_")}
    return f"{spec.engine} {spec.stage} {spec.precision.params} {type(spec.model).__name__}", compared(kinds)


def _train(engine: Engine, spec: JobSpec, meter: probes.ActivationMeter) -> None:
    batch = torch.randint(256, (spec.training.micro_batch_size, spec.training.seq_len + 1))
    with meter.measure():
        engine.micro_step(batch, weight=0.5, last=False)
    engine.micro_step(batch, weight=0.5, last=True)
    engine.step(lr_scale=1.0, tally=[0.0])


def cases() -> list[dict[str, Any]]:
    """The corners: each stage, both engines, both sizes of a parameter, checkpointing, a model of the user's."""
    thrifty = {**OURS["training"], "activation_checkpointing": True}
    return [
        *({**OURS, "stage": stage, "precision": "fp32"} for stage in (0, 1, 2, 3)),
        *({**OURS, "stage": stage, "precision": "bf16"} for stage in (1, 3)),
        {**OURS, "stage": 2, "precision": "fp32", "training": thrifty},
        {**OURS, "stage": 2, "precision": "fp32", "offload": "cpu"},
        *({**OURS, "engine": "fsdp", "stage": stage, "precision": "bf16"} for stage in (0, 3)),
        {**OURS, "stage": 2, "precision": "bf16", "model": {"python": USERS, "args": {"frozen": "mlp"}}},
        {**OURS, "stage": 3, "precision": "bf16", "model": {"python": USERS}},
    ]


@pytest.mark.parametrize("world", [1, 2])
def test_each_kind_is_as_large_as_the_plan_says(world: int) -> None:
    for told in on_ranks(world, _kinds, cases()):
        for name, kinds in told:
            assert {"params", "optimizer"} <= kinds.keys()
            for kind, (measured, said) in kinds.items():
                assert measured == pytest.approx(said, rel=0.05, abs=4096), f"{name}: {kind}"


def corners() -> list[JobSpec]:
    """Of `benchmarks/planner.py`, which measures every cell: each stage, a model of the user's, checkpointing."""
    thrifty = {**OURS["training"], "activation_checkpointing": True}
    images = {"model": {"python": f"{MODELS}:ConvNet", "args": {"width": 64}}, "data": {"python": f"{MODELS}:images"}}
    documents: list[dict[str, Any]] = [
        *({**OURS, "stage": stage, "precision": "fp32"} for stage in (0, 1, 2, 3)),
        {**OURS, "stage": 3, "precision": "fp32", "training": thrifty},
        {**OURS, "model": {"python": USERS, "args": {"frozen": "mlp"}}, "stage": 1, "precision": "fp32"},
        {**images, "stage": 1, "precision": "fp32", "training": {"batch_size": 8, "micro_batch_size": 2}},
    ]
    return [parse_spec(document) for document in documents]


@pytest.mark.parametrize("world", [1, 2])
def test_the_peak_of_tensors_is_what_the_plan_says(world: int) -> None:
    specs = [spec.model_copy(update={"workers": WorkerBounds(min=world, max=world)}) for spec in corners()]
    found = on_ranks(world, planner.measured, specs)
    for number, profile in enumerate(planner.profiles_of(specs)):
        states, peak = planner.said_bytes(specs[number], profile)
        for held, most, _ in (rank[number] for rank in found):
            assert held == pytest.approx(states, rel=0.02), specs[number]
            assert most == pytest.approx(peak, rel=0.05), specs[number]
