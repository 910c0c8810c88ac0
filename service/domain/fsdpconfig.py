"""FSDP's vocabulary -> fields of the spec, and what became of each key: torch's own arguments (those of
FullyShardedDataParallel, `fully_shard`, MixedPrecision, CPUOffload), and the same words as Accelerate and the Hugging
Face Trainer write them, with `fsdp_` before them or without; an Accelerate file may come whole.

The words say how state is held, which both engines here can do; without a word of the spec it is `engine: fsdp`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from service.domain.dsconfig import DTYPES
from service.domain.dsreading import Import, Reading, imported, leaves_of, long_form
from service.domain.errors import Problem

ROOT = "fsdp_config"
_AHEAD = "the next unit is always fetched while this one is used"
_LAUNCH = "workers, machines and ports are the service's"
_START = "models start on the meta device and every rank reads its own part"
# Elements that no model has: nothing is cut off the root unit.
_EVERYTHING = 10**15

IGNORED: Mapping[str, str] = {
    "version": "there is one FSDP here, torch's fully_shard",
    "state_dict_type": "a checkpoint loads at any stage and any number of workers; elastane export writes others",
    "backward_prefetch": _AHEAD,
    "backward_prefetch_policy": _AHEAD,
    "forward_prefetch": _AHEAD,
    "limit_all_gathers": "at most two units are gathered ahead of their use",
    "use_orig_params": "parameters keep their names and objects always",
    "sync_module_states": _START,
    "cpu_ram_efficient_loading": _START,
    "device_id": "a worker has one device, its own",
    "param_init_fn": _START,
    "forward_prefetch_policy": _AHEAD,
    "shard_placement_fn": "a parameter is cut along its first dimension",
    "mixed_precision.keep_low_precision_grads": "gradients rest in fp32, or in the parameters' type",
    "mixed_precision.cast_forward_inputs": "inputs are cast to the parameters' type always",
    "mixed_precision.cast_root_forward_inputs": "inputs are cast to the parameters' type always",
    **dict.fromkeys(
        (
            *(
                "compute_environment",
                "debug",
                "distributed_type",
                "downcast_bf16",
                "machine_rank",
                "main_training_function",
            ),
            *("main_process_ip", "main_process_port", "num_machines", "rdzv_backend", "same_network", "use_cpu"),
            *("enable_cpu_affinity", "tpu_env", "tpu_use_cluster", "tpu_use_sudo"),
        ),
        _LAUNCH,
    ),
}
# What is asked for and is not here: key -> (why, what to do). Without a value it asks for nothing.
ABSENT: Mapping[str, tuple[str, str]] = {
    "ignored_modules": ("every parameter is sharded", "freeze them instead: a frozen parameter has no state"),
    "ignored_states": ("every parameter is sharded", "freeze them instead: a frozen parameter has no state"),
    "ignored_params": ("every parameter is sharded", "freeze them instead: a frozen parameter has no state"),
    "device_mesh": ("the group of the workers is the mesh, and it changes while a job runs", "remove it"),
    "mesh": ("the group of the workers is the mesh, and it changes while a job runs", "remove it"),
    "process_group": ("the group of the workers is the mesh, and it changes while a job runs", "remove it"),
    "xla": ("there is no XLA here", "remove it"),
    "xla_fsdp_v2": ("there is no XLA here", "remove it"),
    "xla_fsdp_settings": ("there is no XLA here", "remove it"),
    "xla_fsdp_grad_ckpt": ("there is no XLA here", "remove it"),
    "mixed_precision.output_dtype": ("the loss is fp32 always", "remove it"),
}
_STRATEGIES = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0}
_HYBRID = {"HYBRID_SHARD": 3, "HYBRID_SHARD_ZERO2": 2}
# As Accelerate numbers them, from 1.
_BY_NUMBER = dict(enumerate((*_STRATEGIES, *_HYBRID), start=1))


def import_fsdp(document: Mapping[str, Any]) -> Import:
    """The document without its `fsdp_config`, which became fields of it."""
    rest = {name: value for name, value in document.items() if name != ROOT}
    config = document.get(ROOT)
    if config is None:
        return Import(document=rest, verdicts=(), problems=(), root=ROOT)
    if not isinstance(config, dict):
        problem = Problem(field=ROOT, value=type(config).__name__, problem="not an object", fix="give its content")
        return Import(document=rest, verdicts=(), problems=(problem,), root=ROOT)
    spec = long_form(rest)
    reading = Reading(leaves=dict(leaves_of(config, sections=set())), spec=spec, root=ROOT)
    reading.defaults["engine"] = "fsdp"
    by_word: dict[str, Callable[[Reading, str], None]] = {
        "fsdp": _words,
        "sharding_strategy": _strategy,
        "reshard_after_forward": _reshard,
        "auto_wrap_policy": _wrap,
        "transformer_layer_cls_to_wrap": _classes,
        "transformer_cls_names_to_wrap": _classes,
        "min_num_params": _least,
        "offload_params": _offload,
        "cpu_offload": _offload,
        "cpu_offload.offload_params": _offload,
        "activation_checkpointing": _recompute,
        "mixed_precision": _precision,
        "mixed_precision.param_dtype": _dtype_of("params"),
        "mixed_precision.reduce_dtype": _dtype_of("reduce"),
        "mixed_precision.buffer_dtype": _dtype_of("buffers"),
        "num_processes": _processes,
    }
    for key in list(reading.leaves):
        word = _word(key)
        if word in by_word:
            by_word[word](reading, key)
        else:
            _other(reading, key, word)
    return imported(reading)


def _word(key: str) -> str:
    """The torch word of a key: Accelerate nests them, and writes `fsdp_` before each; FSDP2 says policy."""
    parts = [part if part == "fsdp" else part.removeprefix("fsdp_") for part in key.split(".") if part != ROOT]
    parts = ["mixed_precision" if part in ("mixed_precision_policy", "mp_policy") else part for part in parts]
    return ".".join(parts)


def _other(reading: Reading, key: str, word: str) -> None:
    value, section = reading.leaves.pop(key), word.split(".")[0]
    name = next((each for each in (word, section) if each in IGNORED or each in ABSENT), None)
    if name is None:
        reading.refuse(key, value, "no word of FSDP that is known here", "remove it, if nothing of yours reads it")
    elif name in IGNORED:
        reading.ignore(key, IGNORED[name])
    elif value in (None, False, "", 0):
        reading.ignore(key, "it asks for nothing")
    else:
        reading.refuse(key, value, *ABSENT[name])


# ---- how state is held ---------------------------------------------------------------------------------------------


def _strategy(reading: Reading, key: str) -> None:
    asked = reading.take(key, "stage")
    if asked is None:
        return
    name = _BY_NUMBER.get(asked, asked) if isinstance(asked, int) and not isinstance(asked, bool) else asked
    name = str(name).removeprefix("ShardingStrategy.").strip("_").upper()
    name = name.removeprefix("FSDP_")
    if name in _STRATEGIES:
        reading.put(key, "stage", _STRATEGIES[name], name)
    elif name in _HYBRID and reading.said("shard_size") is None:
        why = "how many workers share one copy of the state is not said"
        reading.refuse(key, asked, why, "say shard_size beside it: the accelerators of a machine, as torch has it")
    elif name in _HYBRID:
        reading.put(key, "stage", _HYBRID[name], f"{name}, shard_size says over how many")
    else:
        reading.refuse(key, asked, "no sharding strategy", f"use one of {', '.join((*_STRATEGIES, *_HYBRID))}")


def _reshard(reading: Reading, key: str) -> None:
    """FSDP2's word; Accelerate's version 1 writes a strategy there."""
    value = reading.leaves[key]
    if isinstance(value, str) and value.lower() not in ("true", "false"):
        _strategy(reading, key)
    elif isinstance(value, int) and not isinstance(value, bool):
        reading.refuse(
            key, reading.leaves.pop(key), "parameters are given back whole or not at all", "use true or false"
        )
    elif (reshard := _flag(reading, key, "stage")) is not None:
        reading.put(
            key, "stage", 3 if reshard else 2, "parameters rest as shards" if reshard else "kept after the forward"
        )


def _words(reading: Reading, key: str) -> None:
    """The Trainer's list of options, as words."""
    value = reading.take(key, "stage")
    said = value if isinstance(value, list) else str(value or "").split()
    known = {name.lower(): stage for name, stage in _STRATEGIES.items()}
    options = {**known, "offload": None, "auto_wrap": None}
    if value is None:
        return
    if unknown := [word for word in map(str, said) if word not in options]:
        return reading.refuse(key, value, f"no option of fsdp here: {unknown[0]}", f"use {', '.join(options)}")
    for word in said:
        if word in known:
            reading.fields["stage"] = (known[word], key)
        elif word == "offload":
            reading.fields["offload.optimizer"] = ("cpu", key)
    return reading.mapped(key, "stage, offload, and units: auto" if said else "it asks for nothing")


# ---- units ---------------------------------------------------------------------------------------------------------


def _wrap(reading: Reading, key: str) -> None:
    asked = reading.take(key, "units")
    name = str(asked).upper().removesuffix("_POLICY").removesuffix("_AUTO_WRAP").removesuffix("_WRAP")
    if asked is None:
        return
    if name in ("TRANSFORMER_BASED", "TRANSFORMER"):
        reading.mapped(key, "units: the classes that are named, else the model's repeated blocks")
    elif name in ("SIZE_BASED", "SIZE"):
        reading.defaults.setdefault("units.min_params", 10**8)
        reading.mapped(key, "units.min_params: 1e8 is torch's where none is said")
    elif name in ("NO", "NONE"):
        reading.put(key, "units.min_params", _EVERYTHING, "the whole model is one unit, gathered at once")
    else:
        fix = "use TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP"
        reading.refuse(key, asked, "no wrapping policy that is known here", fix)


def _classes(reading: Reading, key: str) -> None:
    value = reading.take(key, "units.layers")
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if value in (None, "", []):
        return None if value is None else reading.ignore(key, "it names nothing: units are the model's repeated blocks")
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        return reading.refuse(key, value, "no list of class names", "write them with commas between, or as a list")
    return reading.put(key, "units.layers", tuple(names))


def _least(reading: Reading, key: str) -> None:
    least = reading.number(key, "units.min_params", whole=True)
    if least == 0:
        reading.ignore(key, "0 asks for nothing")
    elif least is not None:
        reading.put(key, "units.min_params", least)


# ---- tiers, types, the rest ----------------------------------------------------------------------------------------


def _offload(reading: Reading, key: str) -> None:
    """Parameters, gradients and optimizer state together, as FSDP has it."""
    offloads = _flag(reading, key, "offload")
    if offloads is not None:
        reading.put(key, "offload.optimizer", "cpu" if offloads else "none")


def _recompute(reading: Reading, key: str) -> None:
    recomputes = _flag(reading, key, "training.activation_checkpointing")
    if recomputes is not None:
        reading.put(key, "training.activation_checkpointing", recomputes)


def _precision(reading: Reading, key: str) -> None:
    """Accelerate's one word: computes and reduces in it."""
    value = reading.take(key, "precision.params")
    word = "fp32" if value in ("no", False) else DTYPES.get(str(value))
    if value is not None and word is None:
        reading.refuse(key, value, "no data type", "use no, fp16 or bf16")
    elif value is not None:
        reading.put(key, "precision.params", word)


def _dtype_of(part: str) -> Callable[[Reading, str], None]:
    def read(reading: Reading, key: str) -> None:
        """Gradients are reduced in the parameters' type where FSDP is told of that one alone."""
        value = reading.take(key, f"precision.{part}")
        word = DTYPES.get(str(value).removeprefix("torch."))
        if value is None:
            return
        if word is None:
            return reading.refuse(key, value, "no data type", "use fp32, bf16 or fp16")
        if part == "params":
            reading.defaults.setdefault("precision.reduce", word)
        return reading.put(key, f"precision.{part}", word)

    return read


def _processes(reading: Reading, key: str) -> None:
    count = reading.number(key, "workers", least=1, whole=True)
    if count is not None and "workers" in reading.spec:
        reading.ignore(key, "the spec says how many workers")
    elif count is not None:
        reading.put(key, "workers", count)


def _flag(reading: Reading, key: str, name: str) -> bool | None:
    value = reading.take(key, name)
    if value is None or isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    reading.refuse(key, value, "neither true nor false", "correct it")
    return None
