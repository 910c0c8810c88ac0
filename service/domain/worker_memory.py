"""How much memory one worker has, and whether what a plan says it needs fits there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from service.domain.cluster import ClusterFacts, Node, SlotKind, slots_per_worker
from service.domain.hardware import is_named, memory_named
from service.domain.offload import CPU, DEVICE, in_memory
from service.domain.spec import Resources
from service.domain.value import Value

# What a plan leaves free: the allocator's slack, a driver's context, and what the formulas do not see.
MARGIN = 0.9

Kinds = Mapping[str, Mapping[str, int]]


class WorkerMemory(Value):
    """device_bytes: of what its model computes in. apart: that is an accelerator's own, and `host_bytes` of its
    machine's memory are the worker's beside it, where that is known; else the device is host memory."""

    device_bytes: int
    apart: bool = False
    host_bytes: int | None = None

    @property
    def budget_bytes(self) -> int:
        """What a plan may use of the device."""
        return int(MARGIN * self.device_bytes)

    def needed(self, kinds: Kinds) -> int:
        """Bytes of the device."""
        return on_tier(kinds, DEVICE) if self.apart else in_memory(kinds)

    def share(self, kinds: Kinds) -> float:
        """Of what may be used, how much is needed, of the memory that is fuller; above 1 it does not fit."""
        return max(need / max(room, 1) for _, need, room in self._rooms(kinds))

    def holds(self, kinds: Kinds) -> bool:
        return all(need <= room for _, need, room in self._rooms(kinds))

    def shortage(self, kinds: Kinds) -> str:
        """How much is needed of the memory that is fuller, and how much there is."""
        where, need, room = max(self._rooms(kinds), key=lambda each: each[1] / max(each[2], 1))
        return f"needs {need} bytes {where}per worker, {room} can be used"

    def _rooms(self, kinds: Kinds) -> Iterator[tuple[str, int, int]]:
        """Which memory, bytes that are needed there, and that may be used."""
        yield "of its accelerator's memory " if self.apart else "", self.needed(kinds), self.budget_bytes
        if self.apart and self.host_bytes is not None:
            yield "of host memory ", on_tier(kinds, CPU), int(MARGIN * self.host_bytes)


def on_tier(kinds: Kinds, tier: str) -> int:
    return sum(tiers.get(tier, 0) for tiers in kinds.values())


def memory_of_worker(
    resources: Resources, facts: ClusterFacts | None, *, reported_bytes: int | None = None
) -> WorkerMemory | None:
    """Of the least that a worker may find there; None where nobody knows. facts: None where no cluster answers.

    reported_bytes: what workers of such resources said that their accelerator has. It is asked of the cluster's nodes,
    then of the accelerator that the spec names.
    """
    kind = facts.slot_kind if facts is not None else None
    nodes = [node for node in facts.nodes if node.alive and node.slots] if facts is not None else []
    if not computes_on_gpu(resources, kind):
        return _of_host(_host_bytes(resources, nodes, kind))
    nodes = [node for node in nodes if _is_asked(node, resources)] if kind == "gpu" else []
    device = _device_bytes(resources, nodes, reported_bytes)
    if device is None:
        return None
    # Workers that ask for a part of an accelerator share it; one that asks for several computes on one of them.
    part = min(1.0, resources.gpu or 1.0)
    return WorkerMemory(device_bytes=int(part * device), apart=True, host_bytes=_host_bytes(resources, nodes, kind))


def computes_on_gpu(resources: Resources, slot_kind: SlotKind | None) -> bool:
    """As a controller asks for its workers. slot_kind: None where it is not known what the cluster has."""
    if resources.gpu is not None:
        return resources.gpu > 0
    if slot_kind is None:
        return resources.accelerator is not None
    return slot_kind == "gpu" and resources.cpu is None


def _of_host(size: int | None) -> WorkerMemory | None:
    return None if size is None else WorkerMemory(device_bytes=size)


def _host_bytes(resources: Resources, nodes: list[Node], kind: SlotKind | None) -> int | None:
    """A slot's share of the smallest node, for each slot that a worker takes, and no more than the spec asks for."""
    asked = [] if resources.memory_gb is None else [int(resources.memory_gb * 2**30)]
    if kind is None or computes_on_gpu(resources, kind) != (kind == "gpu"):
        return min(asked, default=None)
    slots = slots_per_worker(resources, slot_kind=kind)
    shares = [slots * node.memory_bytes // node.slots for node in nodes if node.memory_bytes]
    return min([*shares, *asked], default=None)


def _is_asked(node: Node, resources: Resources) -> bool:
    asked, there = resources.accelerator, node.accelerator
    return asked is None or there is None or is_named(asked, there)


def _device_bytes(resources: Resources, nodes: list[Node], reported_bytes: int | None) -> int | None:
    """What workers found counts for them all where the nodes are of one kind."""
    if reported_bytes is not None and len({node.accelerator for node in nodes}) <= 1:
        return reported_bytes
    known = [node.accelerator_memory_bytes for node in nodes] or [memory_named(resources.accelerator)]
    sizes = [size for size in known if size is not None]
    return min(sizes) if len(sizes) == len(known) else None
