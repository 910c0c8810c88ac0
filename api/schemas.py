"""The shapes of the REST API: what goes out, and the small bodies that come in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from service.domain import job, series
from service.domain.deviation import compared
from service.domain.job import JobState
from service.domain.key import Scope
from service.domain.spec import JobSpec
from service.keys import QUOTA_LIMIT
from service.ledger import state_data

UNITS = {"workers": "workers", "skipped_steps": "steps", "mfu": "ratio"}

_COUNT: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": 4096}
WORKERS_SCHEMA: dict[str, Any] = {
    "anyOf": [
        _COUNT,
        {
            "type": "object",
            "properties": {"min": _COUNT, "max": _COUNT},
            "minProperties": 1,
            "additionalProperties": False,
        },
    ]
}


def unit_of(metric: str) -> str | None:
    """The unit, which the name of a metric ends in."""
    if metric.endswith("_per_s"):
        return f"{metric.removesuffix('_per_s')}/s"
    return UNITS.get(metric, "s" if metric.endswith("_s") else "bytes" if metric.endswith("_bytes") else None)


class Shape(BaseModel):
    """Read straight from the service's values. Numbers that are not finite become null: JSON has no word for them."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


# ---- jobs --------------------------------------------------------------------------------------------------------


class Workers(Shape):
    desired: int = Field(description="as many as the allocation gives it now")
    actual: int = Field(description="members of the present generation")
    min: int
    max: int


class RankMemory(Shape):
    """What one rank last measured; `predicted_bytes` is the planner's word for the same."""

    rank: int
    params_bytes: int | None = None
    grads_bytes: int | None = None
    optimizer_bytes: int | None = None
    activations_peak_bytes: int | None = None
    gathered_peak_bytes: int | None = None
    process_bytes: int | None = None
    predicted_bytes: int | None = None
    predicted_by_kind_bytes: dict[str, int] = Field(
        default_factory=dict, description="the planner's word for each measured kind"
    )
    host_bytes: int | None = Field(None, description="of the states, what is offloaded to host memory")
    nvme_bytes: int | None = Field(None, description="of the states, what is offloaded to a disk")
    capacity_bytes: int | None = Field(None, description="of its accelerator; null on CPUs")


class Memory(Shape):
    per_rank: list[RankMemory]

    @classmethod
    def of(cls, memory: Mapping[str, Mapping[str, int]]) -> Self:
        """From `Progress.memory`: rank -> kind -> bytes. Kinds that are not shown here are in the metrics."""
        rows = [
            RankMemory(
                rank=int(rank),
                predicted_by_kind_bytes={kind: said for kind, (_, said) in compared(kinds).items()},
                **{f"{kind}_bytes": size for kind, size in kinds.items()},
            )
            for rank, kinds in memory.items()
        ]
        return cls(per_rank=sorted(rows, key=lambda row: row.rank))


class Job(Shape):
    id: str
    name: str | None
    state: JobState
    reason: str = Field(description="a sentence to act on")
    spec: JobSpec
    stage: int | str
    step: int
    steps: int
    workers: Workers
    generation: int
    attempt: int
    throughput_tokens_per_s: float | None
    loss: float | None
    memory: Memory
    priority: int
    key_id: str | None = Field(description="of the API key that submitted it")
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    heartbeat_at: datetime | None = Field(description="when the controller was last heard")

    @classmethod
    def of(cls, found: job.Job) -> Self:
        return cls(**cls._fields(found))

    @staticmethod
    def _fields(found: job.Job) -> dict[str, Any]:
        progress = found.progress
        return {
            "id": found.id,
            "name": found.name,
            "state": found.state,
            "reason": found.reason,
            "spec": found.spec,
            "stage": found.spec.stage,
            "step": progress.step,
            "steps": found.steps,
            "workers": state_data(found)["workers"],
            "generation": progress.generation,
            "attempt": found.attempt,
            "throughput_tokens_per_s": progress.tokens_per_s,
            "loss": progress.loss,
            "memory": Memory.of(progress.memory),
            "priority": found.spec.priority,
            "key_id": found.key_id,
            "created_at": found.created_at,
            "started_at": found.started_at,
            "ended_at": found.ended_at,
            "heartbeat_at": progress.heard_at,
        }


class SubmittedJob(Job):
    """`report`: what the service decided for the user, field by field."""

    report: dict[str, str]

    @classmethod
    def from_submission(cls, found: job.Job, report: Mapping[str, str]) -> Self:
        return cls(**cls._fields(found), report=dict(report))


class JobPage(Shape):
    items: list[Job]
    next_cursor: str | None = Field(description="null: this was the last page")


class ScaleRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    workers: Any = Field(default=None, description="one number, or bounds", json_schema_extra=WORKERS_SCHEMA)
    stage: Annotated[int, Field(ge=0, le=3)] | None = Field(default=None, description="where it should change")
    offload: Any = Field(default=None, description="in a spec's forms, where it should change")

    @model_validator(mode="after")
    def _something(self) -> ScaleRequest:
        if self.workers is None and self.stage is None and self.offload is None:
            raise ValueError("says neither workers nor stage nor offload; give workers: N or {min, max}")
        return self


class PriorityRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    priority: int = Field(ge=0, le=100, description="larger first")


class Ahead(Shape):
    job_id: str
    name: str | None
    priority: int
    slots: int = Field(description="that it holds now")


class Explanation(Shape):
    """Why a job has the workers it has."""

    job_id: str
    state: JobState
    reason: str
    sentences: list[str] = Field(description="with numbers, to be read in order")
    slot_kind: str
    needs_slots: int = Field(description="for its minimum of workers")
    slots: int
    slots_free: int
    ahead: list[Ahead] = Field(description="who holds slots or comes first")


# ---- what a job left behind --------------------------------------------------------------------------------------


class Event(Shape):
    id: int
    kind: str
    at: datetime
    message: str
    attempt: int | None
    generation: int | None
    step: int | None
    payload: dict[str, Any]


class Events(Shape):
    items: list[Event]
    next_after: int = Field(description="pass it as `after` to read on; the same again when there was nothing new")


class Worker(Shape):
    rank: int
    pid: int
    node: str
    device: str
    state: Literal["starting", "running", "lost", "leaving"]
    buddy: int | None = Field(
        None, description="the rank whose worker keeps a copy of this one's shard in memory; null: nobody does"
    )


class WorkerList(Shape):
    items: list[Worker]


class Point(Shape):
    """A bucket of steps: `value` is its last sample, `min` and `max` its extremes, `count` its samples."""

    step: int
    value: float | None
    min: float | None
    max: float | None
    count: int
    generation: int
    at: datetime


class Series(Shape):
    name: str
    rank: int | None = Field(description="null: the whole group's")
    unit: str | None
    total: int = Field(description="samples there are")
    shown: int = Field(description="points here; fewer than `total` where they were downsampled")
    points: list[Point]

    @classmethod
    def of(cls, found: series.Series) -> Self:
        points = [Point.model_validate(point) for point in found.points]
        unit = unit_of(found.name)
        return cls(name=found.name, rank=found.rank, unit=unit, total=found.total, shown=len(points), points=points)


class Metrics(Shape):
    series: list[Series]


class LogRecord(Shape):
    id: int
    rank: int | None = Field(description="null: the controller's")
    at: datetime
    level: Literal["debug", "info", "warning", "error"]
    text: str
    attempt: int


class LogLines(Shape):
    items: list[LogRecord]
    next_after: int


# ---- plan and cluster --------------------------------------------------------------------------------------------


class Node(Shape):
    id: str
    address: str
    alive: bool
    slots: int
    memory_bytes: int | None = Field(description="of the host")
    accelerator: str | None
    accelerator_memory_bytes: int | None = Field(description="of one of its accelerators")


class SlotUse(Shape):
    job_id: str
    name: str | None
    slots: int
    workers: int
    members: list[Worker] = Field(description="of its present generation, by rank")


class PendingJob(Shape):
    job_id: str
    name: str | None
    slots: int
    reason: str


class QuotaUse(Shape):
    key_id: str
    name: str
    slots: int = Field(description="that the jobs of the key hold together")
    quota_slots: int


class Cluster(Shape):
    nodes: list[Node]
    slot_kind: Literal["gpu", "cpu"]
    slots: int
    slots_free: int
    max_slots: int = Field(description="what the autoscaler may reach")
    used: list[SlotUse]
    pending: list[PendingJob]
    quotas: list[QuotaUse] = Field(description="of the keys that have one")


# ---- keys, health ------------------------------------------------------------------------------------------------


QuotaSlots = Annotated[
    Annotated[int, Field(ge=0, le=QUOTA_LIMIT)] | None,
    Field(description="that its jobs may hold together; null: no bound of its own"),
]


class KeyRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=100)
    scopes: list[Scope] = Field(min_length=1, max_length=3)
    quota_slots: QuotaSlots = None


class QuotaRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    slots: QuotaSlots


class Key(Shape):
    id: str
    name: str
    hint: str = Field(description="the first characters of the secret")
    scopes: list[Scope]
    quota_slots: int | None = Field(description="slots that its jobs may hold together; null: no bound of its own")
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewKey(Key):
    key: str = Field(description="the secret; this is the only answer that holds it")


class Keys(Shape):
    items: list[Key]


class SignIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: str = Field(min_length=1, max_length=200)


class Session(Shape):
    """Who calls: the name of the key and what it may do; nobody where `name` is null."""

    key_asked: bool = Field(description="false: everybody may do everything here")
    name: str | None
    scopes: list[Scope]
    quota_slots: int | None = None


class Health(Shape):
    status: Literal["ok"] = "ok"


class Readiness(Shape):
    ready: bool
    checks: dict[str, str] = Field(description='name -> "ok", or what is wrong')
