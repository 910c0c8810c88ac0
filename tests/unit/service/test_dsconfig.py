"""DeepSpeed configurations as they are met: what they become, what is ignored, what is refused. Files: ds_configs/."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.domain.dsconfig import Import
from service.domain.dskeys import ABSENT, IGNORED
from service.domain.dsreading import leaves_of
from service.domain.errors import SpecRefused
from service.domain.parsing import parse, parse_config, parse_spec

CONFIGS = {path.stem: json.loads(path.read_text()) for path in (Path(__file__).parent / "ds_configs").glob("*.json")}
Fields = dict[str, Any]

# name -> (the spec's fields as they become, on 8 workers; the keys that are refused).
MEANT: dict[str, tuple[Fields, set[str]]] = {
    "accelerate": (
        {"stage": 2, "training.batch_size": 4 * 4 * 8, "precision.params": "bf16", "offload.optimizer": "none"},
        set(),
    ),
    "bert-tutorial": (
        {"stage": 0, "training.batch_size": 4096, "training.micro_batch_size": 512, "precision.params": "fp16"},
        {"optimizer.params.bias_correction"},
    ),
    "bf16-stage3": ({"stage": 3, "training.batch_size": 2 * 8 * 8, "training.micro_batch_size": 2}, set()),
    "cifar-tutorial": (
        {
            "stage": 1,
            "training.optimizer.name": "adamw",
            "training.optimizer.betas": [0.8, 0.999],
            "training.schedule.warmup_steps": 1000,
            "precision.loss_scale.initial": 2.0**15,
            "precision.loss_scale.growth_interval": 500,
            "precision.loss_scale.hysteresis": 2,
            "offload.optimizer": "none",
        },
        set(),
    ),
    "elastic": ({"stage": 1}, {"elasticity"}),
    "hf-trainer-stage2": ({"stage": 2, "offload.optimizer": "cpu", "offload.params": "none"}, set()),
    "hf-trainer-stage3": ({"stage": 3, "offload.optimizer": "cpu", "offload.params": "cpu"}, set()),
    "infinity-nvme": (
        {"stage": 3, "offload.optimizer": "nvme", "offload.params": "nvme", "offload.path": "/local_nvme"},
        set(),
    ),
    "lamb-large-batch": ({"stage": 0, "training.clip_norm": 1.0}, {"optimizer.type"}),
    "lion-and-contradictions": (
        {"training.optimizer.name": "lion", "training.optimizer.betas": [0.9, 0.99]},
        {
            "train_batch_size",
            "bf16.enabled",
            "fp16.enabled",
            "zero_optimization.offload_param.device",
            "data_types.grad_accum_dtype",
        },
    ),
    "megatron-gpt2-legacy": (
        {
            "training.optimizer.name": "adam",
            "training.optimizer.betas": [0.9, 0.999],
            "offload.optimizer": "cpu",
            "precision.loss_scale.initial": 128,
            "precision.loss_scale.minimum": 128,
            "precision.loss_scale.growth_interval": None,
        },
        set(),
    ),
    "misspelt": (
        {"training.batch_size": 32},
        {"zero_optimization.reduce_bucket", "zero_optimization.overlap_com", "gradient_cliping"},
    ),
    "monitored": ({"stage": 2, "training.micro_batch_size": 4}, set()),
    "one-bit-adam": ({"training.batch_size": 4096}, {"optimizer.type"}),
    "one-cycle": ({"precision.params": "fp32", "training.optimizer.weight_decay": 0.0}, {"scheduler.type"}),
    "plain-data-parallel": (
        {
            "stage": 0,
            "precision.params": "fp32",
            "training.batch_size": 16 * 2 * 8,
            "training.optimizer.name": "sgd",
            "training.optimizer.nesterov": True,
        },
        set(),
    ),
    "twin-flow": ({"stage": 3, "offload.optimizer": "cpu", "offload.params": "none", "offload.ratio": 0.4}, set()),
    "warmup-cosine": (
        {
            "training.steps": 20000,
            "training.schedule.name": "cosine",
            "training.schedule.min_lr_ratio": 0.1,
            "training.clip_norm": None,
            "precision.reduce": "bf16",
        },
        set(),
    ),
    "warmup-decay": (
        {
            "training.optimizer.lr": 3e-5,
            "training.optimizer.weight_decay": 0.0,
            "training.batch_size": 8 * 8,
            "training.schedule.name": "linear",
            "training.schedule.min_lr_ratio": 0.0,
        },
        set(),
    ),
    "zero-plus-plus": (
        {"stage": 3, "training.batch_size": 1024},
        {f"zero_optimization.zero_{key}" for key in ("hpz_partition_size", "quantized_weights", "quantized_gradients")},
    ),
}


def imported(config: object, **spec: Any) -> Import:
    return parse_config({"model": "gpt-tiny", "ds_config": config, **spec})


def at(document: Fields, name: str) -> Any:
    for part in name.split("."):
        document = document[part]
    return document


def fates(found: Import, fate: str) -> set[str]:
    return {verdict.key for verdict in found.verdicts if verdict.fate == fate}


def refused(config: object, **spec: Any) -> dict[str, str]:
    with pytest.raises(SpecRefused) as caught:
        parse({"model": "gpt-tiny", "ds_config": config, **spec})
    return {problem.field: problem.problem for problem in caught.value.problems}


def test_twenty_configurations_are_met() -> None:
    assert CONFIGS.keys() == MEANT.keys()
    assert len(CONFIGS) == 20


@pytest.mark.parametrize("name", MEANT)
def test_a_configuration_becomes_what_deepspeed_documents(name: str) -> None:
    found, (fields, refusals) = imported(CONFIGS[name], workers=8), MEANT[name]
    assert {field: at(found.document, field) for field in fields} == fields
    assert fates(found, "refused") == refusals
    assert "ds_config" not in found.document
    assert all(verdict.why for verdict in found.verdicts)


@pytest.mark.parametrize("name", MEANT)
def test_each_key_has_one_fate(name: str) -> None:
    keys = sorted(verdict.key for verdict in imported(CONFIGS[name]).verdicts)
    assert keys == sorted(dict(leaves_of(CONFIGS[name])))


@pytest.mark.parametrize("name", [name for name, (_, refusals) in MEANT.items() if not refusals])
def test_what_is_not_refused_is_a_whole_spec(name: str) -> None:
    parsed = parse({"model": "gpt-tiny", "workers": 8, "ds_config": CONFIGS[name]})
    assert parsed.spec.ds_config is None
    assert {key.removeprefix("ds_config.") for key in parsed.report} == set(dict(leaves_of(CONFIGS[name])))


def test_auto_follows_the_spec() -> None:
    training = {"batch_size": 24, "micro_batch_size": 3, "clip_norm": 0.5, "optimizer": {"name": "adamw", "lr": 0.01}}
    spec = parse_spec(
        {"model": "gpt-tiny", "training": training, "precision": "fp16", "ds_config": CONFIGS["hf-trainer-stage2"]}
    )
    assert (spec.training.batch_size, spec.training.micro_batch_size, spec.training.clip_norm) == (24, 3, 0.5)
    assert (spec.training.optimizer.lr, spec.precision.params) == (0.01, "fp16")
    # fp16 is what the spec chose, so the configuration's window of the loss scale is its window.
    assert spec.precision.loss_scale.growth_interval == 1000


def test_a_field_that_says_otherwise_is_named_and_one_that_says_the_same_is_not() -> None:
    config = CONFIGS["infinity-nvme"]
    assert refused(config, stage=2, offload="cpu") == {
        "stage": "ds_config.zero_optimization.stage says 3",
        "offload.optimizer": "ds_config.zero_optimization.offload_optimizer.device says nvme",
    }
    same = {"stage": "FULL_SHARD", "offload": "nvme", "precision": "bf16", "training": {"batch_size": 64}}
    assert parse_spec({"model": "gpt-tiny", "ds_config": config, **same}).stage == 3


def test_what_neither_says_is_deepspeed_s_default_and_gives_way_to_the_spec() -> None:
    spec = parse_spec({"model": "gpt-tiny", "ds_config": {}})
    assert (spec.stage, spec.precision.params) == (0, "fp32")
    spec = parse_spec({"model": "gpt-tiny", "ds_config": {}, "stage": 1, "precision": "bf16"})
    assert (spec.stage, spec.precision.params) == (1, "bf16")


def test_no_key_of_the_tables_is_both_ignored_and_refused() -> None:
    assert not set(IGNORED) & set(ABSENT)


def odd() -> Iterator[object]:
    """Values of every type for each key that becomes a field, and for its section."""
    whole = {
        "train_batch_size": 8,
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1,
        "communication_data_type": "x",
        "fp32_allreduce": 1,
        "data_types": {"grad_accum_dtype": "x"},
        "bf16": {"enabled": 1},
        "fp16": {"enabled": 1, "initial_scale_power": 1, "loss_scale": 1},
        "optimizer": {"type": "AdamW", "params": {"lr": 1, "betas": 1, "adam_w_mode": 1}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 1, "warmup_type": 1, "total_num_steps": 1}},
        "zero_optimization": {"stage": 1, "cpu_offload": 1, "offload_param": {"device": 1, "nvme_path": 1}},
    }
    for key in dict(leaves_of(whole)):
        for value in ([], {}, [{}], {"a": 1}, "x", -1, 10**18, 0.5, True, None):
            *path, last = key.split(".")
            config = inner = json.loads(json.dumps(whole))
            for part in path:
                inner = inner[part]
            inner[last] = value
            yield config
            yield {**whole, key.split(".")[0]: value}


def is_taken(config: object) -> bool:
    try:
        return bool(parse({"model": "gpt-tiny", "ds_config": config}).report)
    except SpecRefused:
        return False


def test_a_wrong_value_of_any_key_is_refused_in_words() -> None:
    """Any other exception is the test's failure."""
    taken = [config for config in odd() if is_taken(config)]
    assert len(taken) < 0.5 * len(list(odd()))
