"""What a plan says: bytes per rank and traffic for every choice, what fits, and what is recommended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChoice:
    """One stage at one number of workers. `bytes_by_kind[kind][tier]`, per rank; elements: moved per step, per rank,
    counted as the ZeRO paper counts;
    bytes_per_step: that a rank sends of them. step_s: estimated, where the rates of the workers are known."""

    stage: int
    offload: str
    workers: int
    bytes_by_kind: Mapping[str, Mapping[str, int]]
    states_bytes: int
    total_bytes: int
    elements_per_step: int
    bytes_per_step: int
    fits: bool | None
    note: str
    step_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    stage: int
    offload: str
    workers: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """One known accelerator: the fastest choice that fits there, or where `fits` is false the one that needs least.

    Times are estimates, None where a sample is not a row of tokens. hides_from_tokens: tokens of a rank's micro-batch
    from which on a unit's gather hides behind its computation. largest_numel: of a model of more of the same blocks, on
    as many, without offload.
    """

    accelerator: str
    memory_bytes: int
    fits: bool
    stage: int
    offload: str
    device_bytes: int
    step_s: float | None
    tokens_per_s: float | None
    traffic_hides: bool | None
    hides_from_tokens: int
    largest_numel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`capacity_bytes`: memory of one worker's device where it is known (None: `fits` is then None too);
    `host_capacity_bytes`: what it has of the host's beside that. `activations_bytes`: what one micro-batch needs at
    most, "plain" and "checkpointed"; empty where it could not be traced."""

    model: str
    numel: int
    unit_numels: Mapping[str, int]
    micro_batches: int
    capacity_bytes: int | None
    host_capacity_bytes: int | None = None
    choices: tuple[PlanChoice, ...]
    recommendation: Recommendation
    outlooks: tuple[Outlook, ...] = ()
    activations_bytes: Mapping[str, int] = field(default_factory=dict)
