"""The shapes of plans, and of what a DeepSpeed configuration becomes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.schemas import Shape


class PlanChoice(Shape):
    """One stage and offload at one number of workers; all bytes are of one rank."""

    stage: int
    offload: str
    workers: int
    bytes_by_kind: dict[str, dict[str, int]] = Field(description="kind -> tier -> bytes")
    states_bytes: int
    total_bytes: int
    elements_per_step: int = Field(description="moved per step and rank, counted as the ZeRO paper counts")
    bytes_per_step: int = Field(description="of them, that a rank sends")
    fits: bool | None = Field(description="null: the memory of a worker is not known")
    step_s: float | None = Field(
        description="estimated by the rates of the workers' accelerator, or by the newest job that was alike"
    )
    note: str


class Recommendation(Shape):
    stage: int
    offload: str
    workers: int
    why: str


class Outlook(Shape):
    """One known accelerator, at the most workers: the fastest choice that fits, or the one that needs least."""

    accelerator: str
    memory_bytes: int
    fits: bool
    stage: int
    offload: str
    device_bytes: int
    step_s: float | None = Field(description="estimated; null: a sample is not a row of tokens")
    tokens_per_s: float | None
    traffic_hides: bool | None = Field(description="whether collectives take no longer than the computation")
    hides_from_tokens: int = Field(description="tokens per rank from which a unit's gather hides")
    largest_numel: int = Field(description="parameters of the deepest model of the same blocks, without offload")


class Plan(Shape):
    model: str
    numel: int
    unit_numels: dict[str, int]
    micro_batches: int
    capacity_bytes: int | None = Field(description="memory of a worker's device; null: not known")
    host_capacity_bytes: int | None = Field(description="of the host's memory, beside an accelerator's own")
    choices: list[PlanChoice]
    recommendation: Recommendation
    outlooks: list[Outlook]
    activations_bytes: dict[str, int] = Field(
        description="what one micro-batch needs at most: plain, checkpointed; empty: it could not be traced"
    )


class KeyFate(Shape):
    """What became of one key of a configuration."""

    key: str
    fate: Literal["mapped", "ignored", "refused"]
    why: str
    fix: str = Field(description="what to do about a refused one")


class ImportRequest(BaseModel):
    """A configuration of DeepSpeed or of FSDP, and what the spec says beside it (a model, the number of workers)."""

    model_config = ConfigDict(extra="forbid")

    ds_config: dict[str, Any] | None = None
    fsdp_config: dict[str, Any] | None = None
    spec: dict[str, Any] = Field(default_factory=dict)


class ImportedSpec(Shape):
    spec: dict[str, Any] = Field(description="what was sent, and the mapped keys in its fields")
    report: list[KeyFate]


class DryRun(Shape):
    """The answer to `?dry_run=true`: the spec is legal; nothing was submitted."""

    dry_run: Literal[True] = True
    plan: Plan | None = Field(description="null: the model's size is known only where it is built")
    report: dict[str, str]
