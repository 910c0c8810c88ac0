"""What there is to run on, as the control plane sees it: nodes and slots. One worker takes at least one slot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from service.domain.spec import Resources

# The wire carries a worker's memory, which is read from here: only types go the other way.
if TYPE_CHECKING:
    from service.domain.wire import WorkerReport

SlotKind = Literal["gpu", "cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine of the cluster. `slots` are those it offers, used or not. `memory_bytes`: of the host;
    `accelerator_memory_bytes`: of one of its accelerators."""

    id: str
    address: str
    alive: bool
    slots: int
    memory_bytes: int | None = None
    accelerator: str | None = None
    accelerator_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """A reading of the cluster. `max_slots`: what the autoscaler may reach; the present where there is none."""

    nodes: tuple[Node, ...]
    slot_kind: SlotKind
    max_slots: int
    address: str

    @property
    def slots(self) -> int:
        return sum(node.slots for node in self.nodes if node.alive)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUse:
    """Who holds slots: granted by the service, or seen on the cluster and not yet free. `members`: of its present
    generation, by rank; none while nobody is at work."""

    job_id: str
    name: str | None
    slots: int
    workers: int
    members: tuple[WorkerReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUse:
    """What the jobs of an API key hold together, of what they may."""

    key_id: str
    name: str
    slots: int
    quota_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingJob:
    """Who waits, and why, in a sentence with numbers."""

    job_id: str
    name: str | None
    slots: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """`GET /v1/cluster`."""

    nodes: tuple[Node, ...]
    slot_kind: SlotKind
    slots: int
    slots_free: int
    max_slots: int
    used: tuple[SlotUse, ...]
    pending: tuple[PendingJob, ...]
    quotas: tuple[QuotaUse, ...] = ()


def slots_per_worker(resources: Resources, *, slot_kind: SlotKind) -> int:
    """Whole slots that one worker takes: GPUs on a cluster of GPUs, else CPUs; at least one."""
    wanted = resources.gpu if slot_kind == "gpu" and resources.gpu is not None else resources.cpu
    if slot_kind == "gpu" and resources.gpu is None:
        wanted = 1.0
    return max(1, math.ceil(wanted if wanted is not None else 1.0))
