"""How a job trains, in the words of a spec: what is left out follows what is said."""

from __future__ import annotations

import json
from typing import Any

from service.domain.parsing import parse_spec
from tests.unit.service.test_parsing import refused, tiny


def test_a_decay_longer_than_training_is_refused() -> None:
    schedule = {"name": "wsd", "warmup_steps": 20, "decay_steps": 90}
    problem = refused(tiny(training={"steps": 100, "schedule": schedule}))["training.schedule.decay_steps"]
    assert problem.fix == "use at most 80, or fewer warmup_steps"


def test_recomputation_and_compilation_are_said_in_words_that_are_known() -> None:
    for value in (True, False, "reentrant"):
        assert parse_spec(tiny(training={"activation_checkpointing": value})).training.activation_checkpointing == value
    problem = refused(tiny(training={"activation_checkpointing": "sometimes"}))["training.activation_checkpointing"]
    assert problem.fix == "write true, false or reentrant"
    assert parse_spec(tiny(compile=True)).compile
    assert list(refused(tiny(compile=2))) == ["compile"]


def test_what_an_optimizer_is_not_told_follows_its_name() -> None:
    def numbers(**fields: Any) -> tuple[float, float, tuple[float, float]]:
        optimizer = parse_spec(tiny(training={"optimizer": fields})).training.optimizer
        return optimizer.lr, optimizer.weight_decay, optimizer.betas

    assert numbers() == numbers(name="adamw") == (3e-4, 0.1, (0.9, 0.95))
    assert parse_spec(tiny(training={"optimizer": {"name": "muon"}})).training.optimizer.momentum == 0.95
    assert numbers(name="lion") == (1e-4, 0.1, (0.9, 0.99))
    assert numbers(name="sgd") == (1e-3, 0.0, (0.9, 0.95))
    assert numbers(name="adagrad", lr=0.5)[:2] == (0.5, 0.0)


def test_short_forms_of_groups_and_of_the_loss_scale_widen() -> None:
    groups = [{"match": "*.bias", "weight_decay": 0}, {"match": ["head.*", "norm.*"], "lr": 0.1}]
    precision = {"params": "fp16", "loss_scale": 128}
    spec = parse_spec(tiny(training={"optimizer": {"groups": groups}}, precision=precision))
    assert [group.match for group in spec.training.optimizer.groups] == [("*.bias",), ("head.*", "norm.*")]
    scale = spec.precision.loss_scale
    assert (scale.initial, scale.minimum, scale.growth_interval) == (128, 128, None)
    dynamic = parse_spec(tiny(precision={"params": "fp16", "loss_scale": "dynamic"}))
    assert dynamic.precision == parse_spec(tiny(precision="fp16")).precision
    assert parse_spec(json.loads(spec.model_dump_json())) == spec
