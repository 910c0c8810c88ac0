"""What a trace says of a model is what a real forward keeps, for models of every kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from service.domain.parsing import parse_spec
from service.domain.profile import described, profile_of
from service.domain.spec import JobSpec
from workers.worker.assemble import build_model
from workers.worker.describe import describe, main
from workers.worker.probes import ActivationMeter

HERE = "tests.unit.worker.test_describe"


class Perceptron(nn.Module):
    """Tied ends, a frozen layer, and no transformer; `forward(batch)` takes a user's samples."""

    def __init__(self, *, looks: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.table.weight
        self.layers[0].requires_grad_(False)
        self.looks = looks

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        hidden = self.table(batch["x"])
        for layer in self.layers:
            hidden = layer(hidden).tanh()
        loss = nn.functional.cross_entropy(self.head(hidden).float(), batch["y"])
        return loss * 2 if self.looks and loss.item() > 100 else loss


def samples() -> list[dict[str, Tensor]]:
    return [{"x": torch.tensor(i % 50), "y": torch.tensor((i + 1) % 50)} for i in range(64)]


def perceptron(**fields: Any) -> JobSpec:
    model = {"python": f"{HERE}:Perceptron", **fields}
    training = {"batch_size": 16, "micro_batch_size": 8}
    return parse_spec(
        {"model": model, "data": {"python": f"{HERE}:samples"}, "precision": "fp32", "training": training}
    )


def test_a_users_model_is_described_without_its_memory(tmp_path: Path) -> None:
    told = describe(perceptron(), cache_folder=tmp_path)
    assert told["numel"] == 50 * 32 + 3 * (32 * 32 + 32)
    assert told["frozen"] == 32 * 32 + 32
    assert [unit["numel"] for unit in told["units"]] == [1600, 1056, 1056, 1056]
    assert json.loads(json.dumps(told)) == told


def test_the_trace_keeps_what_a_real_forward_keeps(tmp_path: Path) -> None:
    spec = perceptron()
    model = build_model(spec)
    meter = ActivationMeter(model)
    batch = torch.utils.data.default_collate(samples()[:8])
    with meter.measure():
        model(batch).backward()
    profile = described(spec, describe(spec, cache_folder=tmp_path))
    assert profile.kept == pytest.approx(meter.peak_bytes, rel=0.01)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_formula_of_our_models_is_their_trace(precision: str, checkpointing: bool, tmp_path: Path) -> None:
    training = {"micro_batch_size": 2, "activation_checkpointing": checkpointing}
    spec = parse_spec({"model": "gpt-tiny", "precision": precision, "training": training})
    formula, traced = profile_of(spec), described(spec, describe(spec, cache_folder=tmp_path))
    assert formula is not None
    assert (formula.numel, formula.units, formula.matrices) == (traced.numel, traced.units, traced.matrices)
    assert formula.kept == pytest.approx(traced.kept, rel=0.02)
    assert sum(formula.passing.values()) == pytest.approx(sum(traced.passing.values()), rel=0.03)
    assert formula.operations == pytest.approx(traced.operations, rel=0.01)


def test_a_model_that_looks_at_values_is_described_without_activations(tmp_path: Path) -> None:
    told = describe(perceptron(args={"looks": True}), cache_folder=tmp_path)
    assert (told["activations"], told["numel"]) == (None, 4768)
    assert "DataDependent" in told["untraced"]


def test_what_cannot_be_built_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    spec = parse_spec({"model": {"python": f"{HERE}:nothing_of_that_name"}})
    assert main([spec.model_dump_json()]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["error"], told["field"]) == ("spec_refused", "model.python")
    assert told["value"] == f"{HERE}:nothing_of_that_name"
