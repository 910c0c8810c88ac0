"""How a job's state is held: stage and offload. Which arrangement fits the workers there are, while it trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from service.domain.choice import OFFLOAD, Room, choose
from service.domain.offload import label
from service.domain.planning import STAGES, rank_bytes
from service.domain.spec import JobSpec, Offload, WorkerBounds
from service.domain.text import counted
from service.domain.value import Value
from service.domain.worker_memory import WorkerMemory


class Arrangement(Value):
    """What may change of a spec while its job trains."""

    stage: int
    offload: Offload = Offload()

    @classmethod
    def of(cls, spec: JobSpec) -> Arrangement:
        """`stage` is resolved at submission."""
        return cls(stage=0 if spec.stage == "auto" else spec.stage, offload=spec.offload)

    def applied(self, spec: JobSpec) -> JobSpec:
        return spec.model_copy(update={"stage": self.stage, "offload": self.offload})

    def __str__(self) -> str:
        return f"stage {self.stage}" + ("" if self.offload.is_none else f" with offload {label(self.offload)}")


class Arranged(NamedTuple):
    """`why`: a sentence where it was chosen; empty where it was wished."""

    arrangement: Arrangement
    why: str = ""


def arranged(spec: JobSpec, wanted: Arrangement, *, workers: int, room: Room) -> Arranged:
    """How so many workers hold the state. What the spec leaves to us (`spec.auto`) is chosen for their number, the rest
    is as wanted; where nothing is left to us, or the model's size is not known, the wanted one gives way only where it
    does not fit."""
    if not spec.auto or room.profile_of(spec) is None:
        found = fitting(spec, wanted, workers=workers, room=room)
        return Arranged(found, "" if found == wanted else f"{wanted} does not fit {counted(workers, 'worker')}")
    free = {"stage": "auto"} if "stage" in spec.auto else {}
    trial = wanted.applied(spec).model_copy(update={**free, "workers": WorkerBounds(min=workers, max=workers)})
    chosen, report = choose(trial, {OFFLOAD} & set(spec.auto), room)
    return Arranged(Arrangement.of(chosen), next(iter(report.values())))


def fitting(spec: JobSpec, wanted: Arrangement, *, workers: int, room: Room) -> Arrangement:
    """The wanted one where it fits so many workers, else the first that does, by traffic: a higher stage, then host
    memory where the device has its own, then a disk.

    The wanted one too where nothing fits, or where the memory of a worker or the size of the model is not known.
    """
    profile, memory = room.profile_of(spec), _granted(spec, room)
    if profile is None or memory is None:
        return wanted
    facts: dict[str, int] = {"workers": workers, "budget_bytes": memory.budget_bytes}
    for each in (wanted, *_others(spec, wanted, apart=memory.apart)):
        if memory.holds(rank_bytes(spec, profile, stage=each.stage, offload=each.offload, **facts)):
            return each
    return wanted


def _granted(spec: JobSpec, room: Room) -> WorkerMemory | None:
    """An accelerator's is all a worker's; of the memory of CPUs that a worker did not ask for, others may have more."""
    if room.memory is not None and room.memory.apart:
        return room.memory
    asked = spec.resources.memory_gb
    return None if asked is None or spec.resources.gpu else WorkerMemory(device_bytes=int(asked * 2**30))


def _others(spec: JobSpec, wanted: Arrangement, *, apart: bool) -> Iterator[Arrangement]:
    """On CPUs host memory is the workers' own: only a disk takes anything away from it."""
    higher = [stage for stage in STAGES[spec.engine] if stage > wanted.stage]
    yield from (wanted.model_copy(update={"stage": stage}) for stage in higher)
    host = [Offload(optimizer="cpu")] if apart and wanted.offload.is_none else []
    disk = [Offload(optimizer="nvme")] if spec.engine == "zero" and not wanted.offload.on_disk else []
    for offload in (*host, *disk):
        yield from (Arrangement(stage=stage, offload=offload) for stage in (wanted.stage, *higher))
