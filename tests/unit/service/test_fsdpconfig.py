"""FSDP's settings as they are met: torch's words, Accelerate's files and the Trainer's options."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.dsreading import Import, leaves_of
from service.domain.errors import SpecRefused
from service.domain.parsing import parse, parse_config

ACCELERATE = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "FSDP",
    "fsdp_config": {
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_backward_prefetch": "BACKWARD_PRE",
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_forward_prefetch": False,
        "fsdp_offload_params": True,
        "fsdp_sharding_strategy": "FULL_SHARD",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_sync_module_states": True,
        "fsdp_transformer_layer_cls_to_wrap": "Block, Embedding",
        "fsdp_use_orig_params": True,
        "fsdp_activation_checkpointing": True,
    },
    "mixed_precision": "bf16",
    "num_machines": 1,
    "num_processes": 4,
}
SECOND = {
    "fsdp_version": 2,
    "fsdp_reshard_after_forward": False,
    "fsdp_auto_wrap_policy": "SIZE_BASED_WRAP",
    "fsdp_min_num_params": 2_000_000,
}
TORCH = {
    "sharding_strategy": "ShardingStrategy.SHARD_GRAD_OP",
    "cpu_offload": {"offload_params": False},
    "mixed_precision": {
        "param_dtype": "torch.bfloat16",
        "reduce_dtype": "torch.float32",
        "buffer_dtype": "torch.float32",
    },
    "limit_all_gathers": True,
    "ignored_modules": None,
}
TRAINER = {"fsdp": "full_shard auto_wrap offload", "transformer_layer_cls_to_wrap": ["Block"], "min_num_params": 0}


def imported(config: object, **spec: Any) -> Import:
    return parse_config({"model": "gpt-tiny", "fsdp_config": config, **spec})


def at(document: dict[str, Any], name: str) -> Any:
    for part in name.split("."):
        document = document[part]
    return document


def refused(found: Import) -> dict[str, str]:
    return {verdict.key: verdict.why for verdict in found.verdicts if verdict.fate == "refused"}


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        (
            ACCELERATE,
            {
                "engine": "fsdp",
                "stage": 3,
                "offload.optimizer": "cpu",
                "units.layers": ["Block", "Embedding"],
                "precision.params": "bf16",
                "training.activation_checkpointing": True,
                "workers": 4,
            },
        ),
        (SECOND, {"stage": 2, "units.min_params": 2_000_000}),
        (TORCH, {"stage": 2, "offload.optimizer": "none", "precision.params": "bf16", "precision.reduce": "fp32"}),
        (TRAINER, {"stage": 3, "offload.optimizer": "cpu", "units.layers": ["Block"]}),
        ({"sharding_strategy": 3}, {"stage": 0}),
        ({"mixed_precision_policy": {"param_dtype": "bfloat16"}}, {"precision.reduce": "bf16"}),
        ({"auto_wrap_policy": "NO_WRAP"}, {"units.min_params": 10**15}),
    ],
)
def test_settings_become_a_whole_spec(config: dict[str, Any], fields: dict[str, Any]) -> None:
    found = imported(config)
    assert {field: at(found.document, field) for field in fields} == fields
    assert refused(found) == {}
    keys = sorted(verdict.key for verdict in found.verdicts)
    assert keys == sorted(dict(leaves_of(config, sections=())))
    parsed = parse({"model": "gpt-tiny", "fsdp_config": config})
    assert parsed.spec.fsdp_config is None
    assert {key.removeprefix("fsdp_config.") for key in parsed.report} == set(dict(leaves_of(config, sections=())))


def test_what_is_not_here_is_refused_with_what_to_do() -> None:
    config = {
        "sharding_strategy": "HYBRID_SHARD",
        "device_mesh": "mesh_2d",
        "auto_wrap_policy": "lambda",
        "fsdp_ofload_params": True,
        "mixed_precision": "fp8",
    }
    assert refused(imported(config)).keys() == config.keys()
    with pytest.raises(SpecRefused) as caught:
        parse({"model": "gpt-tiny", "fsdp_config": config})
    assert all(problem.fix for problem in caught.value.problems)


def test_a_hybrid_strategy_needs_the_size_of_its_groups() -> None:
    found = imported({"sharding_strategy": "HYBRID_SHARD_ZERO2"}, shard_size=2)
    assert (found.document["stage"], found.document["shard_size"], refused(found)) == (2, 2, {})


def test_a_field_that_says_otherwise_is_named() -> None:
    with pytest.raises(SpecRefused) as caught:
        imported({"sharding_strategy": "FULL_SHARD"}, stage=2)
    assert [problem.problem for problem in caught.value.problems] == ["fsdp_config.sharding_strategy says 3"]


def test_the_words_hold_for_the_other_engine_as_well() -> None:
    assert imported(SECOND, engine="zero").document["engine"] == "zero"


def is_taken(config: object) -> bool:
    try:
        return bool(parse({"model": "gpt-tiny", "fsdp_config": config}).report)
    except SpecRefused:
        return False


def test_a_wrong_value_of_any_key_is_refused_in_words() -> None:
    """Any other exception is the test's failure."""
    configs = (SECOND, TORCH, TRAINER, {"num_processes": 2, "offload_params": True})
    values = ([], {}, [{}], {"a": 1}, "x", -1, 10**18, 0.5, True, None)
    odd = [{**config, key: value} for config in configs for key in config for value in values]
    assert sum(is_taken(config) for config in odd) < 0.6 * len(odd)
