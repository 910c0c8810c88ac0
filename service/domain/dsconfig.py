"""A DeepSpeed configuration -> fields of the spec, and what became of each key: mapped, ignored or refused, and why.

"auto" means here what it means where DeepSpeed documents it: whoever launches decides, so the spec's own field does.
An absent key gives DeepSpeed's default where the configuration speaks of the same thing, and gives way to the spec.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from service.domain.dskeys import ABSENT, IGNORED
from service.domain.dsreading import AUTO, ROOT, Import, Reading, imported, leaves_of, long_form, most_workers
from service.domain.errors import Problem
from service.domain.text import counted
from service.domain.training import TrainingSpec

# Of so many unknown keys the nearest known one is looked for.
MOST_GUESSES = 20
DTYPES = {
    **dict.fromkeys(("fp32", "float32", "float"), "fp32"),
    **dict.fromkeys(("bf16", "bfp16", "bfloat16"), "bf16"),
    **dict.fromkeys(("fp16", "float16", "half"), "fp16"),
}


def import_config(document: Mapping[str, Any]) -> Import:
    """The document without its `ds_config`, which became fields of it."""
    rest = {name: value for name, value in document.items() if name != ROOT}
    config = document.get(ROOT)
    if config is None:
        return Import(document=rest, verdicts=(), problems=())
    if not isinstance(config, dict):
        problem = Problem(
            field=ROOT, value=type(config).__name__, problem="not an object", fix="give the file's content"
        )
        return Import(document=rest, verdicts=(), problems=(problem,))
    reading = Reading(leaves=dict(leaves_of(config)), spec=long_form(rest))
    for section in (_batch, _precision, _zero, _schedule, _optimizer, _others):
        section(reading)
    return imported(reading)


# ---- sections ------------------------------------------------------------------------------------------------------

_TOTAL, _MICRO, _TURNS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


def _batch(reading: Reading) -> None:
    """train_batch_size = micro-batch x accumulation steps x workers: of what is absent, accumulation is 1."""
    batch, size = "training.batch_size", "training.micro_batch_size"
    total, micro = (reading.number(*pair, least=1, whole=True) for pair in ((_TOTAL, batch), (_MICRO, size)))
    turns = reading.number(_TURNS, batch, least=1, whole=True)
    workers = most_workers(reading.spec)
    if micro is not None:
        reading.put(_MICRO, size, micro)
    if total is not None and total % ((micro or 1) * (turns or 1)):
        reading.refuse(_TOTAL, total, f"not a multiple of {_MICRO} x {_TURNS}", "correct one of the three")
    elif total is not None:
        reading.put(_TOTAL, batch, total)
    if turns is not None and total is not None:
        reading.ignore(_TURNS, "the micro-batches of a step are shared out over the workers there are")
    elif turns is not None:
        each = micro or reading.said(size) or TrainingSpec().micro_batch_size
        why = f"{each} x {turns} x {counted(workers, 'worker')}"
        reading.put(_TURNS, batch, each * turns * workers if isinstance(each, int) else None, why)
    if total is not None and micro is None and _MICRO not in reading.autos and not total % ((turns or 1) * workers):
        reading.defaults[size] = total // ((turns or 1) * workers)
    if micro is not None and total is None and turns is None:
        reading.defaults[batch] = micro * workers
    clip = reading.number("gradient_clipping", "training.clip_norm")
    if clip is not None:
        reading.put("gradient_clipping", "training.clip_norm", clip or None, "" if clip else "0 is no clipping")


def _precision(reading: Reading) -> None:
    """Without bf16 and fp16 DeepSpeed computes in fp32."""
    for key in [key for key in reading.leaves if key.startswith("bfloat16.")]:
        # The name that DeepSpeed's section had once.
        reading.leaves.setdefault(key.replace("bfloat16", "bf16"), reading.leaves.pop(key))
    chosen = [name for name in ("bf16", "fp16") if _enabled(reading, name)]
    if len(chosen) == 2:
        for name in chosen:
            reading.refuse(f"{name}.enabled", True, "bf16 and fp16 are both enabled", "enable one of the two")
    elif chosen:
        reading.put(f"{chosen[0]}.enabled", "precision.params", chosen[0])
    elif not reading.autos & {"bf16.enabled", "fp16.enabled"}:
        reading.defaults["precision.params"] = "fp32"
    _loss_scale(reading, used=reading.said("precision.params") == "fp16")
    _reductions(reading)


def _enabled(reading: Reading, name: str) -> bool:
    value = reading.take(f"{name}.enabled", "precision.params")
    if value is False:
        reading.ignore(f"{name}.enabled", "it is not enabled")
    elif value is not None and value is not True:
        reading.refuse(f"{name}.enabled", value, "neither true, false nor auto", "correct it")
    return value is True


def _dtype(reading: Reading, key: str, name: str = "") -> str | None:
    value = reading.take(key, name)
    if value is None or str(value) in DTYPES:
        return None if value is None else DTYPES[str(value)]
    reading.refuse(key, value, "no data type of DeepSpeed", "use fp32, bf16 or fp16")
    return None


def _reductions(reading: Reading) -> None:
    key, where = "communication_data_type", "precision.reduce"
    if (dtype := _dtype(reading, key, where)) is not None:
        reading.put(key, where, dtype)
    key = "fp32_allreduce"
    wanted = reading.take(key, where)
    if wanted is True:
        reading.put(key, where, "fp32")
    elif wanted is not None:
        reading.ignore(key, f"{where} decides")


def _loss_scale(reading: Reading, *, used: bool) -> None:
    """DeepSpeed's defaults are 2^16, a window of 1000, hysteresis 2 and at least 1; a scale of 0 is a dynamic one."""
    where = "precision.loss_scale"
    own = {
        "loss_scale": "",
        "initial_scale_power": ".initial",
        "loss_scale_window": ".growth_interval",
        "hysteresis": ".hysteresis",
        "min_loss_scale": ".minimum",
    }
    numbers = {name: reading.number(f"fp16.{name}", f"{where}{inner}") for name, inner in own.items()}
    given = {name: number for name, number in numbers.items() if number is not None}
    if not used:
        for name in given:
            reading.ignore(f"fp16.{name}", "fp16 is not enabled")
        return
    if scale := given.pop("loss_scale", 0):
        reading.put("fp16.loss_scale", f"{where}.initial", scale, "a scale that stays")
        reading.fields[f"{where}.minimum"] = (scale, "fp16.loss_scale")
        reading.defaults[f"{where}.growth_interval"] = None
        for name in given:
            reading.ignore(f"fp16.{name}", "loss_scale is a number, so the scale stays")
        return
    if numbers["loss_scale"] == 0:
        reading.mapped("fp16.loss_scale", f"{where}: dynamic")
    for name, number in given.items():
        value = 2.0 ** min(number, 1000) if name == "initial_scale_power" else number
        reading.put(f"fp16.{name}", f"{where}{own[name]}", value)
    usual = {"initial": 65536.0, "growth_interval": 1000, "hysteresis": 2, "minimum": 1.0}
    reading.defaults.update({f"{where}.{name}": value for name, value in usual.items()})


def _zero(reading: Reading) -> None:
    key = "zero_optimization.stage"
    if reading.leaves.get(key) == AUTO:
        reading.put(key, "stage", reading.leaves.pop(key))
    elif (stage := reading.number(key, "stage", whole=True)) is not None:
        if stage <= 3:
            reading.put(key, "stage", stage)
        else:
            reading.refuse(key, stage, "there are stages 0 to 3", "use 0, 1, 2 or 3")
    else:
        reading.defaults["stage"] = 0
    _offload(reading)
    key = "data_types.grad_accum_dtype"
    dtype = _dtype(reading, key)
    params = reading.said("precision.params") or reading.defaults.get("precision.params", "bf16")
    if dtype == "fp32" != params and reading.said("stage") not in (3, AUTO):
        why = f"below stage 3 gradients are summed in the parameters' type, {params}"
        reading.refuse(key, dtype, why, "use stage 3, which sums in fp32, or remove it")
    elif dtype is not None:
        reading.ignore(key, "gradients are summed in fp32 at stage 3, in the parameters' type below it")


def _offload(reading: Reading) -> None:
    zero, stage = "zero_optimization", reading.said("stage")
    for old, name in (("cpu_offload", "optimizer"), ("cpu_offload_params", "params")):
        if (value := reading.take(f"{zero}.{old}", f"offload.{name}")) is not None:
            reading.put(f"{zero}.{old}", f"offload.{name}", "cpu" if value else "none")
    for section, name in (("offload_optimizer", "optimizer"), ("offload_param", "params")):
        key = f"{zero}.{section}.device"
        device = reading.take(key, f"offload.{name}")
        if device is not None and device not in ("none", "cpu", "nvme"):
            reading.refuse(key, device, "no device of DeepSpeed", "use none, cpu or nvme")
        elif name == "params" and device in ("cpu", "nvme") and stage not in (3, AUTO):
            reading.refuse(key, device, "only stage 3 can offload parameters", "use stage 3, or remove it")
        elif device is not None:
            reading.put(key, f"offload.{name}", device)
        _path(reading, f"{zero}.{section}.nvme_path", on_disk=device == "nvme")
    if "offload.optimizer" in reading.fields:
        reading.defaults["offload.params"] = "none"
    ratio = reading.number(f"{zero}.offload_optimizer.ratio", "offload.ratio")
    if ratio is not None and ratio != 1 and reading.said("offload.params") not in ("none", None):
        why, fix = "here one ratio is of optimizer and parameters together", "remove it, or say offload.ratio"
        reading.refuse(f"{zero}.offload_optimizer.ratio", ratio, why, fix)
    elif ratio is not None:
        reading.put(f"{zero}.offload_optimizer.ratio", "offload.ratio", ratio)


def _path(reading: Reading, key: str, *, on_disk: bool) -> None:
    folder = reading.take(key, "offload.path")
    if folder is None:
        return
    known = reading.fields.get("offload.path", (folder,))[0]
    if not on_disk:
        reading.ignore(key, "nothing of it rests on a disk")
    elif known != folder:
        reading.refuse(key, folder, f"the optimizer's is {known}; here both rest in one folder", "use one folder")
    else:
        reading.put(key, "offload.path", folder)


# DeepSpeed's numbers where `params` leaves them out.
_ADAM = {"lr": 1.0e-3, "betas": (0.9, 0.999), "eps": 1.0e-8, "weight_decay": 0.0}
_OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": _ADAM,
    "adam": _ADAM,
    "adagrad": {"lr": 1.0e-2, "eps": 1.0e-10, "weight_decay": 0.0},
    "sgd": {"lr": 1.0e-3, "momentum": 0.0, "weight_decay": 0.0},
    "lion": {"lr": 1.0e-4, "betas": (0.9, 0.99), "weight_decay": 0.0},
    "muon": {"lr": 2.0e-2, "momentum": 0.95, "weight_decay": 0.0, "adjust_lr": "original"},
}


def _optimizer(reading: Reading) -> None:
    """Type Adam is AdamW unless `adam_w_mode` is false: so DeepSpeed has it."""
    where, params = "training.optimizer", "optimizer.params"
    asked = reading.take("optimizer.type", f"{where}.name")
    name = str(asked).lower()
    if asked is not None and name not in _OPTIMIZERS:
        fix = f"use one of {', '.join(_OPTIMIZERS)}"
        reading.refuse("optimizer.type", asked, "there is no such optimizer here", fix)
        reading.drop(params, "its optimizer is refused")
    decoupled = reading.take(f"{params}.adam_w_mode")
    if decoupled is not None:
        reading.mapped(f"{params}.adam_w_mode", f"{where}.name")
    if asked is not None and name in _OPTIMIZERS:
        name = "adamw" if name == "adam" and decoupled is not False else name
        reading.put("optimizer.type", f"{where}.name", name, "numbers that are left out are DeepSpeed's")
        reading.defaults.update({f"{where}.{each}": value for each, value in _OPTIMIZERS[name].items()})
    for number in ("lr", "betas", "eps", "weight_decay", "momentum", "nesterov"):
        value = reading.take(f"{params}.{number}", f"{where}.{number}")
        if value is not None and f"{where}.{number}" in reading.fields:
            reading.ignore(f"{params}.{number}", "the schedule sets the rate: warmup_max_lr")
        elif value is not None:
            reading.put(f"{params}.{number}", f"{where}.{number}", tuple(value) if isinstance(value, list) else value)
        elif f"{params}.{number}" in reading.autos:
            reading.defaults.pop(f"{where}.{number}", None)


_SCHEDULES = {"warmuplr": "constant", "warmupdecaylr": "linear", "warmupcosinelr": "cosine"}


def _schedule(reading: Reading) -> None:
    """A schedule of DeepSpeed's sets the rate itself: `warmup_max_lr` wins over the optimizer's lr."""
    where, params = "training.schedule", "scheduler.params"
    asked = reading.take("scheduler.type", f"{where}.name")
    name = _SCHEDULES.get(str(asked).lower())
    if asked is not None and name is None:
        fix = "use WarmupLR, WarmupDecayLR or WarmupCosineLR"
        reading.refuse("scheduler.type", asked, "there is no such schedule here", fix)
        reading.drop(params, "its schedule is refused")
    elif asked is not None and name is not None:
        reading.put("scheduler.type", f"{where}.name", name)
        floor = {"linear": 0.0, "cosine": 1.0e-4}
        reading.defaults[f"{where}.warmup_steps"] = 1000
        reading.defaults |= {f"{where}.min_lr_ratio": floor[name]} if name in floor else {}
    warmup = reading.number(f"{params}.warmup_num_steps", f"{where}.warmup_steps", whole=True)
    if f"{params}.warmup_num_steps" in reading.autos:
        reading.defaults.pop(f"{where}.warmup_steps", None)
    elif warmup is not None:
        reading.put(f"{params}.warmup_num_steps", f"{where}.warmup_steps", warmup)
    rate = reading.number(f"{params}.warmup_max_lr", "training.optimizer.lr")
    if rate is not None:
        reading.put(f"{params}.warmup_max_lr", "training.optimizer.lr", rate, "the schedule sets the rate")
    steps = reading.number(f"{params}.total_num_steps", "training.steps", least=1, whole=True)
    if steps is not None:
        reading.put(f"{params}.total_num_steps", "training.steps", steps)
    floor_ratio = reading.number(f"{params}.cos_min_ratio", f"{where}.min_lr_ratio")
    if floor_ratio is not None:
        reading.put(f"{params}.cos_min_ratio", f"{where}.min_lr_ratio", floor_ratio)
    kind = reading.take(f"{params}.warmup_type")
    if kind is not None:
        exact = "it is linear" if kind == "linear" else "the warm-up is linear here"
        reading.ignore(f"{params}.warmup_type", exact)


def _others(reading: Reading) -> None:
    unknown = 0
    for key, value in reading.leaves.items():
        if key in IGNORED:
            reading.ignore(key, IGNORED[key])
        elif key in ABSENT:
            absent = ABSENT[key]
            asks = value.get("enabled", bool(value)) if isinstance(value, dict) else value not in absent.harmless
            if asks:
                reading.refuse(key, value, absent.why, absent.fix)
            else:
                reading.ignore(key, "it asks for nothing")
        else:
            unknown += 1
            known = [*IGNORED, *ABSENT] if unknown <= MOST_GUESSES else []
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
            fix = f"did you mean {close[0]}?" if close else "remove it, if nothing of yours reads it"
            reading.refuse(key, value, "no key of DeepSpeed that is known here", fix)
