"""From a JobSpec to live values: model, engine, loader. The only place that knows both words."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from service.domain.planning import auto_ratio
from service.domain.presets import PRESETS
from service.domain.spec import GptModel, HfModel, JobSpec, PrecisionSpec, UnitRuleSpec
from service.domain.training import TrainingSpec
from service.domain.worker_memory import MARGIN
from workers.data.corpus import open_corpus
from workers.data.loader import Loader
from workers.engine.placement import Placement
from workers.engine.precision import Precision
from workers.engine.protocol import Engine
from workers.engine.units import UnitRule, UnitRuleError, group_units
from workers.engine.zero.engine import ZeroEngine
from workers.models import huggingface
from workers.models.blueprint import Blueprint
from workers.models.compiled import compile_forwards
from workers.models.recompute import recompute, repeated_blocks
from workers.models.registry import draw
from workers.optimizers.config import OptimizerConfig, ParamGroup
from workers.optimizers.loss_scale import LossScaleRule
from workers.tiers.nvme import OffloadFailed
from workers.user_code import SpecError
from workers.worker.probes import available_bytes

if TYPE_CHECKING:
    from workers.engine.fsdp2.engine import Fsdp2Engine
    from workers.engine.fsdp2.sharding import SparseGradients

log = logging.getLogger(__name__)

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def build_model(spec: JobSpec) -> torch.nn.Module:
    """Whole, on the CPU, from the job's seed: equal on every worker."""
    return draw_model(spec).materialise()


def draw_model(spec: JobSpec) -> Blueprint:
    """The model on the meta device where it can be, and the values that it starts from."""
    training = spec.training
    blueprint = draw(spec.model, seed=training.seed, seq_len=training.seq_len)
    model = blueprint.model
    try:
        units = group_units(model, unit_rule(spec.units))
    except UnitRuleError as error:
        rule = spec.model_dump()["units"] or {}
        field = "units.layers" if rule.get("layers") else "units.min_params"
        value = list(rule.get("layers") or ()) or rule.get("min_params")
        raise SpecError(field=field, value=value, problem=str(error), fix="name a class of the model") from error
    if spec.compile:
        root, *blocks = units
        compile_forwards(module for unit in blocks or [root] for module in unit.modules)
    if training.activation_checkpointing:
        recompute(repeated_blocks(model), reentrant=training.activation_checkpointing == "reentrant")
    return blueprint


def know_engine(spec: JobSpec) -> None:
    """Have it imported, so that no group waits for that."""
    if spec.engine == "fsdp":
        _fsdp()


def build_loader(spec: JobSpec, *, cache_folder: Path) -> Loader:
    dataset = open_corpus(spec.data, seq_len=spec.training.seq_len, cache_folder=cache_folder, vocab=vocabulary(spec))
    return Loader(dataset, seed=spec.training.seed)


def build_engine(
    model: torch.nn.Module, group: dist.ProcessGroup, spec: JobSpec, device: torch.device, *, folder: Path
) -> Engine:
    """The engine on this rank of the group, from the model's present values. No collective.

    folder: for states on a disk, where the spec names none. Raises SpecError for what no engine here can do.
    """
    if spec.stage == "auto":
        raise SpecError(field="stage", value="auto", problem="a worker cannot choose it", fix="choose stage 0 to 3")
    if spec.engine == "fsdp":
        engine, refusal = _fsdp()
        with _blaming_the_model(refusal):
            return engine(
                model,
                group,
                stage=spec.stage,
                precision=precision(spec.precision),
                optimizer=optimizer_config(spec.training, model),
                clip_norm=spec.training.clip_norm,
                units=unit_rule(spec.units),
                device=device,
                offload=spec.offload.optimizer == "cpu",
                shard_size=spec.shard_size,
            )
    if spec.deterministic and device.type != "cpu":
        problem, fix = f"{device} sums in orders of its own", "use resources: {cpu: 1}, or leave it out"
        raise SpecError(field="deterministic", value=True, problem=problem, fix=fix)
    with blaming_the_disk():
        return ZeroEngine(
            model,
            group,
            stage=spec.stage,
            precision=precision(spec.precision),
            optimizer=optimizer_config(spec.training, model),
            clip_norm=spec.training.clip_norm,
            units=unit_rule(spec.units),
            device=device,
            placement=placement(spec, model, device, workers=group.size(), folder=folder),
            deterministic=spec.deterministic,
        )


def placement(spec: JobSpec, model: torch.nn.Module, device: torch.device, *, workers: int, folder: Path) -> Placement:
    """`params` follows the optimizer where nothing is said of it: below stage 3 the engine moves no parameter."""
    offload = spec.offload
    return Placement.of(
        device,
        optimizer=offload.optimizer,
        params=offload.optimizer if offload.params is None else offload.params,
        ratio=_ratio(spec, model, device, workers=workers),
        folder=Path(offload.path) if offload.path is not None else folder,
    )


def _ratio(spec: JobSpec, model: torch.nn.Module, device: torch.device, *, workers: int) -> float:
    """`auto` by what this device has free now, and on CPUs by what the job asked for or the machine has free."""
    if spec.offload.ratio != "auto" or spec.stage == "auto":
        return 1.0 if spec.offload.ratio == "auto" else spec.offload.ratio
    if device.type == "cuda":
        budget, _ = torch.cuda.mem_get_info(device)
    elif spec.resources.memory_gb is not None:
        budget = int(spec.resources.memory_gb * 2**30)
    else:
        budget = available_bytes()
    numel = sum(param.numel() for param in model.parameters())
    return auto_ratio(spec, stage=spec.stage, numel=numel, workers=workers, budget_bytes=int(MARGIN * budget))


def _fsdp() -> tuple[type[Fsdp2Engine], type[SparseGradients]]:
    # A third of what a worker would import, and only its own jobs need it.
    from workers.engine.fsdp2.engine import Fsdp2Engine  # noqa: PLC0415
    from workers.engine.fsdp2.sharding import SparseGradients  # noqa: PLC0415

    return Fsdp2Engine, SparseGradients


@contextmanager
def _blaming_the_model(refusal: type[SparseGradients]) -> Iterator[None]:
    try:
        yield
    except refusal as error:
        raise SpecError(field="engine", value="fsdp", problem=str(error), fix="use engine: zero") from error


@contextmanager
def blaming_the_disk() -> Iterator[None]:
    try:
        yield
    except OffloadFailed as error:
        raise SpecError(field="offload.path", value=error.folder, problem=error.problem, fix=error.fix) from error


def precision(spec: PrecisionSpec) -> Precision:
    """fp32 parameters with fp32 reductions leave nothing to cast."""
    return Precision(
        params=DTYPES[spec.params],
        reduce=DTYPES[spec.reduce],
        buffers=DTYPES[spec.buffers],
        loss_scale=LossScaleRule(**dict(spec.loss_scale)),
    )


def optimizer_config(training: TrainingSpec, model: torch.nn.Module) -> OptimizerConfig:
    """A group that has no parameter changes nothing, and is told: its glob may be misspelt."""
    spec = training.optimizer
    groups = tuple(ParamGroup(match=g.match, lr=g.lr, weight_decay=g.weight_decay) for g in spec.groups)
    names = [name for name, _ in model.named_parameters()]
    for index, group in enumerate(groups):
        if not any(map(group.has, names)):
            log.warning("training.optimizer.groups.%d: no parameter is named like %s", index, ", ".join(group.match))
    return OptimizerConfig(
        name=spec.name,
        lr=spec.lr,
        betas=spec.betas,
        eps=spec.eps,
        weight_decay=spec.weight_decay,
        momentum=spec.momentum,
        nesterov=spec.nesterov,
        adjust_lr=spec.adjust_lr,
        groups=groups,
        decay_vectors=spec.no_decay == "none",
        ema_decay=training.ema_decay,
    )


def unit_rule(units: object) -> UnitRule:
    if isinstance(units, UnitRuleSpec):
        return UnitRule(layers=units.layers or (), min_params=units.min_params)
    return UnitRule()


def vocabulary(spec: JobSpec) -> int | None:
    """How many tokens the model knows; None for a model of the user's."""
    if isinstance(spec.model, str):
        return PRESETS[spec.model].vocab
    if isinstance(spec.model, HfModel):
        return huggingface.vocabulary(spec.model.hf)
    return spec.model.vocab if isinstance(spec.model, GptModel) else None
