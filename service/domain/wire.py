"""The one message between the planes: a Heartbeat carries facts up, Orders ride down in its reply.

The controller of an attempt posts a Heartbeat about every second and whenever something happened. Facts are delivered
at least once and applied once: `facts_from` numbers the first fact of the message and the reply acknowledges.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from service.domain.arrangement import Arrangement
from service.domain.profile import Profile
from service.domain.spec import JobSpec
from service.domain.worker_memory import WorkerMemory

PROTOCOL = 1

Phase = Literal["starting", "running", "resizing", "recovering", "pausing", "ended"]


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


class WorkerReport(Message):
    """A member of the present generation. `buddy`: the rank whose worker keeps a copy of its shard in memory."""

    worker_id: str
    rank: int
    pid: int
    node: str
    device: str
    state: Literal["starting", "running", "lost", "leaving"]
    buddy: int | None = None


class Sample(Message):
    """A point of a chart. `rank` is None for what is the group's; NaN and infinity are legal values of a loss."""

    name: str
    rank: int | None = None
    step: int
    generation: int
    value: float
    at: AwareDatetime


class EventReport(Message):
    """A line of the timeline; `kind` and the payload's fields are listed in `event.py`."""

    kind: str
    step: int | None = None
    generation: int | None = None
    at: AwareDatetime
    payload: dict[str, Any] = Field(default_factory=dict)


class CheckpointReport(Message):
    """A published checkpoint, or one that retention removed (`removed`). `pause_s`: how long it held training."""

    step: int
    uri: str
    size_bytes: int
    files: int
    duration_s: float
    pause_s: float | None = None
    removed: bool = False
    request_id: str | None = None
    at: AwareDatetime


class LogLine(Message):
    rank: int | None = None
    at: AwareDatetime
    level: Literal["debug", "info", "warning", "error"] = "info"
    text: str


class Fact(Message):
    """One numbered fact; exactly one of the fields is set."""

    event: EventReport | None = None
    samples: tuple[Sample, ...] | None = None
    checkpoint: CheckpointReport | None = None
    logs: tuple[LogLine, ...] | None = None


class Outcome(Message):
    """How an attempt ended. `cause` decides which budget pays: the user's exceptions or lost machines."""

    result: Literal["succeeded", "failed", "paused", "cancelled", "superseded"]
    cause: Literal["user", "machine", "system"] | None = None
    reason: str = ""


class Heartbeat(Message):
    """`note`: what the attempt waits for just now, in a sentence that a user can act on."""

    protocol: int = PROTOCOL
    job_id: str
    attempt_id: str
    phase: Phase
    step: int
    generation: int
    world_size: int
    workers: tuple[WorkerReport, ...] = ()
    facts_from: int = 0
    facts: tuple[Fact, ...] = ()
    outcome: Outcome | None = None
    note: str = ""
    at: AwareDatetime


class Orders(Message):
    """Wishes down. `acknowledged` is the number of the next fact the service wants; `action` is level-triggered.

    arrangement, auto: where they are others than the brief's.
    """

    protocol: int = PROTOCOL
    acknowledged: int
    workers: int
    action: Literal["run", "pause", "cancel", "leave"] = "run"
    checkpoint_request: str | None = None
    arrangement: Arrangement | None = None
    auto: tuple[Literal["stage", "offload"], ...] | None = None


class LostAttempt(Message):
    """The attempt before, which was lost: the last step that was heard of it, and how long ago that was."""

    step: int
    stood_s: float


class Brief(Message):
    """What a controller fetches once, when it starts. folder: where relative paths of the spec start from; None: where
    Ray puts a worker, for a cluster's machines have no folder in common with the service. secrets_folder: where workers
    find the secrets that a spec names. slot_kind: of a cluster whose nodes are still to come. lost: None where this
    attempt recovers nothing. profile, memory: sizes of the model and memory of a worker, where they are known;
    has_disk: whether states may rest on one unasked."""

    protocol: int = PROTOCOL
    job_id: str
    attempt_id: str
    attempt_number: int
    spec: JobSpec
    workers: int
    checkpoint_uri: str
    cache_folder: str
    log_folder: str
    folder: str | None = None
    secrets_folder: str | None = None
    ray_address: str
    namespace: str
    orphan_timeout_s: float
    slot_kind: Literal["gpu", "cpu"] | None = None
    lost: LostAttempt | None = None
    profile: Profile | None = None
    memory: WorkerMemory | None = None
    has_disk: bool = False
