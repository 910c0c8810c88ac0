"""How a job trains: steps, batches, optimizer and schedule. Nothing of it depends on the number of workers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from service.domain.value import Value


class ParamGroupSpec(Value):
    """Numbers of the parameters whose name a glob of `match` matches; what is left out is as everywhere else."""

    match: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=300)], ...], Field(min_length=1)]
    lr: float | None = Field(None, ge=0, le=10)
    weight_decay: float | None = Field(None, ge=0, le=10)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, dict) and isinstance(value.get("match"), str):
            return {**value, "match": (value["match"],)}
        return value


# What is left out follows the name: torch's defaults, and Lion's of its authors (arXiv:2302.06675).
_OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adam": {"weight_decay": 0.0},
    "sgd": {"lr": 1.0e-3, "weight_decay": 0.0},
    "adagrad": {"lr": 1.0e-2, "eps": 1.0e-10, "weight_decay": 0.0},
    "lion": {"lr": 1.0e-4, "betas": (0.9, 0.99)},
    "muon": {"momentum": 0.95, "nesterov": True},
}


class OptimizerSpec(Value):
    """The first of `groups` that has a parameter gives its numbers. `no_decay: auto` leaves out what has fewer than two
    dimensions (biases, norms), where no group says otherwise. A schedule multiplies the lr of every group. Muon takes
    the matrices of the repeated blocks, AdamW the rest with the same lr; `adjust_lr` is torch.optim.Muon's
    `adjust_lr_fn`.
    """

    name: Literal["adamw", "adam", "sgd", "adagrad", "lion", "muon"] = "adamw"
    lr: float = Field(3.0e-4, gt=0, le=10)
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    eps: float = Field(1.0e-8, gt=0, le=1)
    weight_decay: float = Field(0.1, ge=0, le=10)
    momentum: float = Field(0.0, ge=0, lt=1)
    nesterov: bool = False
    adjust_lr: Literal["match_rms_adamw", "original"] = "match_rms_adamw"
    no_decay: Literal["none", "auto"] = "none"
    groups: Annotated[tuple[ParamGroupSpec, ...], Field(max_length=100)] = ()

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_name(cls, value: object) -> object:
        return {**_OPTIMIZERS.get(str(value.get("name")), {}), **value} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _momentum_has_a_use(self) -> OptimizerSpec:
        if self.momentum and self.name not in ("sgd", "muon"):
            raise ValueError(f"{self.name} has no momentum; remove it, or use betas")
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov without a momentum; give momentum, such as 0.9")
        return self


class ScheduleSpec(Value):
    """Linear warm-up; then constant, or down to `min_lr_ratio` at the last step: linear, cosine, or (wsd) stable until
    the last `decay_steps` (null: a fifth of all steps) and linear in them."""

    name: Literal["constant", "linear", "cosine", "wsd"] = "cosine"
    warmup_steps: int = Field(20, ge=0, le=10**9)
    min_lr_ratio: float = Field(0.1, ge=0, le=1)
    decay_steps: int | None = Field(None, ge=1, le=10**9)

    @model_validator(mode="after")
    def _decay_steps_have_a_use(self) -> ScheduleSpec:
        if self.decay_steps is not None and self.name != "wsd":
            raise ValueError(
                f"decay_steps belong to wsd, and the schedule is {self.name}; remove them, or use name: wsd"
            )
        return self


class TrainingSpec(Value):
    """`batch_size` is global, in sequences. Neither it nor the data order ever depends on the number of workers.
    `ema_decay`: an average of the weights is kept and saved beside them; each step moves it by 1 - ema_decay.
    `activation_checkpointing`: the repeated blocks recompute; `reentrant` is torch's older kind."""

    steps: int = Field(200, ge=1, le=10**9)
    batch_size: int = Field(32, ge=1, le=1_000_000)
    micro_batch_size: int = Field(4, ge=1, le=1_000_000)
    seq_len: int = Field(256, ge=1, le=1_000_000)
    seed: int = Field(1, ge=0, lt=2**63)
    optimizer: OptimizerSpec = OptimizerSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    clip_norm: float | None = Field(1.0, gt=0)
    ema_decay: float | None = Field(None, ge=0, lt=1)
    activation_checkpointing: bool | Literal["reentrant"] = False
