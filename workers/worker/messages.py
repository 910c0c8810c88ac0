"""What a controller and a worker say to each other. Plain values, no torch: the controller imports this.

Every message names its generation; one of an older generation is dropped by whoever receives it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from service.domain.arrangement import Arrangement
from workers.engine.states import Collective
from workers.layout.layout import Piece

# ---- down: orders of the controller ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """Where the generations meet: a TCP store outside the ranks."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FromDisk:
    """The newest whole checkpoint of the job; where there is none, step 0 with the model's seeded initial values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FromMembers:
    """What these workers hold of step `step`: their own shards, and those that they mirror for others."""

    step: int
    holders: tuple[str, ...]


Origin = FromDisk | FromMembers


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Form generation `generation`. `members[rank]` is a worker id on `nodes[rank]`; `leavers` only hand over.

    arrangement: how its state is held.
    """

    generation: int
    members: tuple[str, ...]
    nodes: tuple[str, ...]
    leavers: tuple[str, ...] = ()
    store: StoreAddress
    origin: Origin
    arrangement: Arrangement


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """Write a checkpoint of the boundary where the generation stopped."""

    generation: int
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The generation is over: leave its group and answer with Broken, that is, with what is held."""

    generation: int


# ---- up: reports of a worker -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Warm: process, imports, model and data are there. `node` is its address, `node_id` what Ray calls it.
    `device_bytes`: memory of its accelerator, where it has one."""

    pid: int
    node: str
    device: str
    warm_s: float
    node_id: str = ""
    device_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """This process was told to end: it should hand over and leave. `left_s`: until it is killed, where that is said."""

    reason: str
    left_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """What a worker is doing when a new controller finds it. `training`: its generation stands and makes steps."""

    worker_id: str
    ready: Ready | None
    generation: int
    members: tuple[str, ...]
    training: bool
    step: int
    arrangement: Arrangement | None = None


class NotOwner(Exception):
    """A newer attempt has adopted this worker: the caller must leave it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The group stands and the state of `step` is loaded. `source`: where it came from."""

    generation: int
    step: int
    source: Literal["survivors", "checkpoint", "start"]
    form_s: float
    move_s: float
    moved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A generation's first step is done. `pause_s`: since the end of this worker's last step; None for a joiner."""

    generation: int
    step: int
    pause_s: float | None
    first_step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Values of one step; `rank` is None for what is the whole group's."""

    generation: int
    step: int
    at: datetime
    values: dict[str, float]
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The group agreed to stop after `step`; everything of that step is held."""

    generation: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Pieces of one step that a worker can give."""

    step: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A collective failed after `step`. What this worker still holds, by step; `whole` is tensor -> numel; `recent` are
    the last collectives of its part in the generation."""

    generation: int
    step: int
    error: str
    holdings: tuple[Holding, ...] = field(default=(), repr=False)
    whole: dict[str, int] = field(default_factory=dict, repr=False)
    recent: tuple[Collective, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """An exception that no other group would cure. `cause` decides whose budget pays; "machine": others may go on."""

    generation: int
    step: int
    cause: Literal["user", "machine", "system"]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """A save is on its way behind training: what rank 0 has written of its own file."""

    generation: int
    step: int
    written_bytes: int
    total_bytes: int
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """`pause_s`: of `duration_s`, how long training was held."""

    generation: int
    step: int
    uri: str
    size_bytes: int
    files: int
    duration_s: float
    pause_s: float = 0.0
    request_id: str | None = None
    removed_steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveFailed:
    """Nothing was published; checkpoints of before are intact. `dropped`: a rank of it left or was lost."""

    generation: int
    step: int
    reason: str
    request_id: str | None = None
    dropped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A checkpoint that is not whole, when the state was loaded: an older one is used. `file`: the one to restore."""

    generation: int
    step: int
    file: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The last step is done and saved."""

    generation: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Handed over; nothing of this generation is here any more."""

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line worth telling the service."""

    at: datetime
    level: Literal["debug", "info", "warning", "error"]
    text: str
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Step 0 is that of a checkpoint of another job; `missing` says what only one side had."""

    generation: int
    uri: str
    step: int
    missing: tuple[str, ...] = ()


# Facts of the job's checkpoints, whatever generation tells them.
CheckpointNews = Saving | Saved | SaveFailed | PassedOver | Started
# Of one generation: dropped where it is no longer the present one.
GenerationNews = Joined | Resumed | Stopped | Broken | Finished | Left
Report = Ready | Notice | GenerationNews | Points | Crashed | CheckpointNews | Line
