"""JobSpec: what a user asks for, whole and immutable. Each field knows its unit, its bounds and its default.

Short forms of the contract ("gpt-tiny", "cpu", "bf16", one number of workers, FSDP's names of stages) become the long
form here and nowhere else. Rules that need two fields or the machine are in `admission.py`.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag, model_validator

from service.domain.environment import EnvironmentSpec
from service.domain.presets import PRESETS
from service.domain.training import TrainingSpec
from service.domain.value import Value

Tier = Literal["none", "cpu", "nvme"]
Dtype = Literal["fp32", "bf16", "fp16"]
Stage = Literal[0, 1, 2, 3, "auto"]

FSDP_STAGES = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "_HYBRID_SHARD_ZERO2": 2}


# ---- model ---------------------------------------------------------------------------------------------------------


class GptModel(Value):
    """A GPT of one's own size."""

    name: Literal["gpt"] = "gpt"
    layers: int = Field(6, ge=1, le=1000)
    width: int = Field(384, ge=1, le=65536)
    heads: int = Field(6, ge=1, le=1024)
    vocab: int = Field(256, ge=2, le=2_000_000)
    context: int = Field(256, ge=1, le=1_000_000)

    @model_validator(mode="after")
    def _heads_divide_width(self) -> GptModel:
        if self.width % self.heads:
            raise ValueError(
                f"width {self.width} is not divisible by heads {self.heads}; make width a multiple of heads"
            )
        return self


class HfModel(Value):
    """A Hugging Face folder or id (config + safetensors)."""

    hf: str = Field(min_length=1, max_length=1000)


class PythonModel(Value):
    """A function of the user's that returns the module, or (module, loss_fn)."""

    python: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", max_length=300)
    args: dict[str, Any] = Field(default_factory=dict)


def _preset(value: object) -> object:
    if isinstance(value, str) and value not in PRESETS:
        raise ValueError(f"no preset of that name; there are {', '.join(PRESETS)}")
    return value


def _kind_of_model(value: object) -> str:
    if isinstance(value, str):
        return "preset"
    keys = value if isinstance(value, dict) else vars(value) if isinstance(value, BaseModel) else {}
    return "hf" if "hf" in keys else "python" if "python" in keys else "gpt"


ModelSpec = Annotated[
    Annotated[Annotated[str, Field(max_length=100), BeforeValidator(_preset)], Tag("preset")]
    | Annotated[GptModel, Tag("gpt")]
    | Annotated[HfModel, Tag("hf")]
    | Annotated[PythonModel, Tag("python")],
    Discriminator(_kind_of_model),
]

# ---- data ----------------------------------------------------------------------------------------------------------


class TextData(Value):
    """Files matched by a glob, read as bytes (vocab 256)."""

    text: str = Field(min_length=1, max_length=1000)


class TokensData(Value):
    """A flat file of token ids, memory-mapped."""

    tokens: str = Field(min_length=1, max_length=1000)
    dtype: Literal["uint8", "uint16", "uint32", "int32", "int64"] = "uint16"


class PythonData(Value):
    """A function of the user's that returns a map-style dataset."""

    python: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", max_length=300)
    args: dict[str, Any] = Field(default_factory=dict)


def _kind_of_data(value: object) -> str:
    if isinstance(value, str):
        return "stdlib"
    keys = value if isinstance(value, dict) else vars(value) if isinstance(value, BaseModel) else {}
    return "tokens" if "tokens" in keys else "python" if "python" in keys else "text"


DataSpec = Annotated[
    Annotated[Literal["stdlib"], Tag("stdlib")]
    | Annotated[TextData, Tag("text")]
    | Annotated[TokensData, Tag("tokens")]
    | Annotated[PythonData, Tag("python")],
    Discriminator(_kind_of_data),
]

# ---- engine --------------------------------------------------------------------------------------------------------


class Offload(Value):
    """Tier of each kind of state. `params: null` follows `optimizer` at stage 3 and stays on the device below it."""

    optimizer: Tier = "none"
    params: Tier | None = None
    ratio: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = 1.0
    path: str | None = Field(None, max_length=1000)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"optimizer": value} if isinstance(value, str) else value

    @property
    def is_none(self) -> bool:
        return self.optimizer == "none" and self.params in (None, "none")

    @property
    def on_disk(self) -> bool:
        return "nvme" in (self.optimizer, self.params)


class LossScaleSpec(Value):
    """Doubled after `growth_interval` steps without an overflow (null: never), halved at overflows down to `minimum`.
    `hysteresis`: the first halving waits for so many. Short forms: dynamic, or a number for a scale that stays."""

    initial: float = Field(65536.0, gt=0, le=2.0**60)
    minimum: float = Field(1.0, gt=0, le=2.0**60)
    growth_interval: int | None = Field(2000, ge=1, le=10**9)
    hysteresis: int = Field(1, ge=1, le=1000)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return {"initial": value, "minimum": value, "growth_interval": None}
        return {} if value == "dynamic" else value

    @model_validator(mode="after")
    def _ordered(self) -> LossScaleSpec:
        if self.minimum > self.initial:
            raise ValueError(f"minimum {self.minimum} is larger than initial {self.initial}; swap them")
        return self


class PrecisionSpec(Value):
    """Types of the forward and backward, of reductions, and of buffers; the master is always fp32. The loss is scaled
    where fp16 computes or travels."""

    params: Dtype = "bf16"
    reduce: Dtype = "fp32"
    buffers: Dtype = "fp32"
    loss_scale: LossScaleSpec = LossScaleSpec()

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"params": value} if isinstance(value, str) else value


class UnitRuleSpec(Value):
    """What communicates together: the modules of these classes, or as many as reach `min_params` parameters."""

    layers: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    min_params: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _one_of_two(self) -> UnitRuleSpec:
        if (self.layers is None) == (self.min_params is None):
            raise ValueError("give layers or min_params, one of the two; or units: auto")
        return self


def _mirrors(value: object) -> object:
    """YAML reads `off` as false."""
    return {False: "off", True: "auto"}[value] if isinstance(value, bool) else value


def _stage(value: object) -> object:
    return FSDP_STAGES.get(value, value) if isinstance(value, str) else value


_NEEDED = "needed"


def _shard_size(value: object) -> object:
    if value == _NEEDED:
        raise ValueError("HYBRID_SHARD needs a number; write how many workers share one copy of the state")
    return value


# ---- size ----------------------------------------------------------------------------------------------------------


class WorkerBounds(Value):
    """How many workers a job may have."""

    min: int = Field(1, ge=1, le=4096)
    max: int = Field(1, ge=1, le=4096)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, int) and not isinstance(value, bool):
            return {"min": value, "max": value}
        if isinstance(value, dict) and "max" in value and "min" not in value:
            return {"min": 1, **value}
        if isinstance(value, dict) and "min" in value and "max" not in value:
            return {**value, "max": value["min"]}
        return value

    @model_validator(mode="after")
    def _ordered(self) -> WorkerBounds:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is larger than max {self.max}; swap them")
        return self


class Resources(Value):
    """Of one worker. Without any: one GPU on a cluster that has GPUs, else one CPU."""

    gpu: float | None = Field(None, ge=0, le=16)
    cpu: float | None = Field(None, ge=0, le=1024)
    memory_gb: float | None = Field(None, gt=0, le=100_000)
    accelerator: str | None = Field(None, max_length=100)


# ---- the whole -------------------------------------------------------------------------------------------------------


class CheckpointSpec(Value):
    """The newest `keep_last` stay, and of those that `every_steps` makes every `keep_every`-th for good.
    `uri: null` is a folder of the service's own."""

    every_steps: int = Field(100, ge=1, le=10**9)
    keep_last: int = Field(3, ge=1, le=10_000)
    keep_every: int | None = Field(None, ge=1, le=10**6)
    uri: str | None = Field(None, max_length=1000)

    def next_after(self, step: int) -> int:
        """The first step after this one that is due."""
        return (step // self.every_steps + 1) * self.every_steps


class StartFrom(Value):
    """The checkpoint that step 0 begins with: of a job of this service (`job`, `step`; its newest where no step is
    said), or in a folder that holds a job's checkpoints (`uri`). With `optimizer: false` only the weights are taken;
    with `allow_missing` what only one side has begins as it does in a new job."""

    job: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")
    step: int | None = Field(None, ge=0, lt=2**40)
    uri: str | None = Field(None, min_length=1, max_length=1000)
    optimizer: bool = True
    allow_missing: bool = False

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        job, _, step = value.partition("@")
        if step and not step.isdecimal():
            raise ValueError(f"{step[:40]!r} is no step; write JOB@STEP, or JOB for its newest checkpoint")
        return {"job": job, "step": int(step) if step else None}

    @model_validator(mode="after")
    def _somewhere(self) -> StartFrom:
        if self.job is None and self.uri is None:
            raise ValueError("says neither job nor uri; write JOB@STEP, or {uri: FOLDER} of a job's checkpoints")
        return self


class HangSpec(Value):
    """What counts as a death: no step within `step_s` (auto: by the recent steps, and more for a first one), or no word
    of a worker's process within `silence_s`."""

    step_s: Literal["auto"] | Annotated[float, Field(gt=0, le=10**6)] = "auto"
    silence_s: float = Field(15.0, ge=1, le=10**6)


class JobSpec(Value):
    """The whole of it; `JobSpec.model_validate(document)` fills defaults and widens short forms. `compile`: the modules
    of each unit run through torch.compile."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")] | None = None
    model: ModelSpec
    data: DataSpec = "stdlib"
    engine: Literal["zero", "fsdp"] = "zero"
    stage: Annotated[Stage, BeforeValidator(_stage)] = 2
    # Workers that share one copy of the state, as HYBRID_SHARD has it; a group that it does not divide shares one.
    shard_size: Annotated[int | None, Field(ge=1, le=4096), BeforeValidator(_shard_size)] = None
    offload: Offload = Offload()
    # Which of the two were said to be auto: chosen at submission, and again for each other number of workers.
    auto: tuple[Literal["stage", "offload"], ...] = ()
    units: Literal["auto"] | UnitRuleSpec = "auto"
    precision: PrecisionSpec = PrecisionSpec()
    compile: bool = False
    workers: WorkerBounds = WorkerBounds()
    resources: Resources = Resources()
    environment: EnvironmentSpec = EnvironmentSpec()
    training: TrainingSpec = TrainingSpec()
    # The same bits, whatever the workers were: gradients and losses are summed in the order of the micro-batches.
    deterministic: bool = False
    checkpoint: CheckpointSpec = CheckpointSpec()
    start_from: StartFrom | None = Field(None, alias="from")
    hang: HangSpec = HangSpec()
    # Steps between two copies of each shard to another worker's memory; auto: as few as cost under 5 % of the steps.
    mirrors: Annotated[Literal["auto", "off"] | Annotated[int, Field(ge=1, le=10**6)], BeforeValidator(_mirrors)] = (
        "auto"
    )
    priority: int = Field(50, ge=0, le=100)
    ds_config: dict[str, Any] | None = None
    fsdp_config: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _defaults_that_follow_other_fields(cls, value: object) -> object:
        return _fill(value) if isinstance(value, dict) else value

    @property
    def mirrored(self) -> bool:
        """Whether each worker keeps a copy of another's shard. Where the state is whole on every rank, that would add
        nothing; two shards of what rests on a disk would not fit into memory: after a loss, a checkpoint is read."""
        return self.mirrors != "off" and self.stage != 0 and not self.offload.on_disk

    def digest(self) -> str:
        """SHA-256 of the canonical JSON: equal for specs that mean the same."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def _fill(document: dict[str, Any]) -> dict[str, Any]:
    """`seq_len` follows the model's context and `micro_batch_size` the batch, where the user left them out."""
    if "HYBRID" in str(document.get("stage")) and document.get("shard_size") is None:
        document = {**document, "shard_size": _NEEDED}
    training = document.get("training", {})
    if not isinstance(training, dict):
        return document
    filled = dict(training)
    context = _context(document.get("model"))
    if "seq_len" not in filled and context is not None:
        filled["seq_len"] = min(256, context)
    batch = filled.get("batch_size")
    if "micro_batch_size" not in filled and isinstance(batch, int) and batch >= 1:
        filled["micro_batch_size"] = next(size for size in (4, 3, 2, 1) if batch % size == 0)
    return {**document, "training": filled}


def _context(model: object) -> int | None:
    if isinstance(model, str):
        return PRESETS[model].context if model in PRESETS else None
    context = model.get("context") if isinstance(model, dict) else None
    return context if isinstance(context, int) and context >= 1 else None
