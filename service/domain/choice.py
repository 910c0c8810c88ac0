"""What `auto` becomes, and why; and where a spec does not fit, the nearest thing that would. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from service.domain.offload import NONE, WHOLE, label
from service.domain.plan import PlanChoice, Recommendation
from service.domain.planning import plan_spec, recommend
from service.domain.profile import Profile
from service.domain.spec import JobSpec, Offload, WorkerBounds
from service.domain.text import counted
from service.domain.worker_memory import MARGIN, WorkerMemory

OFFLOAD, MICRO = "offload", "training.micro_batch_size"
LARGEST_MICRO = 64
MOST_WORKERS = 4096

# The sizes of a spec's model, which depend on its micro-batch; None where only the data plane could tell.
ProfileOf = Callable[[JobSpec], Profile | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """`memory`: of a worker, where it is known. `has_disk`: whether states may rest on one unasked."""

    profile_of: ProfileOf
    memory: WorkerMemory | None
    has_disk: bool = True


def choose(spec: JobSpec, wishes: Collection[str], room: Room) -> tuple[JobSpec, Mapping[str, str]]:
    """The spec with its `auto` resolved, and what was decided: field -> sentence. `wishes`: fields beside `stage` that
    were said to be auto."""
    report: dict[str, str] = {}
    if MICRO in wishes:
        spec, report[MICRO] = _micro(spec, wishes, room)
    if spec.stage != "auto" and OFFLOAD not in wishes:
        return spec, report
    asked = {"stage"} if spec.stage == "auto" else set[str]()
    again = {*spec.auto, *asked, *({OFFLOAD} & set(wishes))}
    spec = spec.model_copy(update={"auto": tuple(sorted(again, reverse=True))})
    profile = room.profile_of(spec)
    if profile is None:
        why = "the size of this model is not known before it runs"
        report |= {"stage": f"stage 2: {why}, and stage 2 is the usual choice"} if asked else {}
        report |= {OFFLOAD: f"none: {why}"} if OFFLOAD in wishes else {}
        return spec.model_copy(update={"stage": 2} if asked else {}), report
    found = _recommended(spec, wishes, room, profile)
    report |= {field: found.why for field in (*asked, *({OFFLOAD} & set(wishes)))}
    return _placed(spec, found, wishes), report


def _placed(spec: JobSpec, found: Recommendation, wishes: Collection[str]) -> JobSpec:
    offload = {label(each): each for each in WHOLE}.get(found.offload, spec.offload)
    if offload.on_disk:
        offload = offload.model_copy(update={"path": spec.offload.path})
    changed = {"stage": found.stage, **({"offload": offload} if OFFLOAD in wishes else {})}
    return spec.model_copy(update=changed)


def _recommended(spec: JobSpec, wishes: Collection[str], room: Room, profile: Profile) -> Recommendation:
    choices = plan_spec(spec, memory=room.memory, profile=profile).choices
    offloads = _allowed(spec, room) if OFFLOAD in wishes else [spec.offload]
    return recommend(spec, choices, room.memory, offloads=offloads, keep_stage=True)


def _allowed(spec: JobSpec, room: Room) -> list[Offload]:
    most = WHOLE if spec.engine == "zero" and room.has_disk else WHOLE[:2]
    return [offload for offload in most if room.memory is not None or offload == NONE]


def _micro(spec: JobSpec, wishes: Collection[str], room: Room) -> tuple[JobSpec, str]:
    """The largest at which the fastest placement of micro-batches of 1 still fits, on the fewest workers, with a share
    for each of the most. It is part of what the loss depends on, so it is chosen once."""
    fewest = spec.model_copy(update={"workers": WorkerBounds(min=spec.workers.min, max=spec.workers.min)})
    single = room.profile_of(with_micro(spec, 1))
    if room.memory is None or single is None:
        size = spec.training.micro_batch_size
        return spec, f"{size}: the memory of a worker, or the size of the model, is not known here"
    found = _recommended(with_micro(fewest, 1), wishes, room, single)
    placed = _placed(fewest, found, wishes)
    for size in micro_sizes(spec):
        trial = with_micro(placed, size)
        choice = choice_of(trial, room)
        if choice is not None and choice.fits:
            break
    needs = "" if choice is None else f" and needs {room.memory.needed(choice.bytes_by_kind)} bytes"
    where = f"{counted(spec.workers.min, 'worker')} at stage {found.stage}, offload {found.offload}"
    why = f"{size}: the largest that fits on {where}"
    return with_micro(spec, size), f"{why}{needs}"


def micro_sizes(spec: JobSpec) -> Iterator[int]:
    """Divisors of the batch that leave each of the most workers one, largest first; 1 at last."""
    batch = spec.training.batch_size
    most = max(1, min(LARGEST_MICRO, batch // spec.workers.max))
    return (size for size in range(most, 0, -1) if batch % size == 0)


def with_micro(spec: JobSpec, size: int) -> JobSpec:
    return spec.model_copy(update={"training": spec.training.model_copy(update={"micro_batch_size": size})})


def choice_of(spec: JobSpec, room: Room) -> PlanChoice | None:
    """The plan's line of the spec itself, at its most workers."""
    profile = room.profile_of(spec)
    if profile is None:
        return None
    mine = (spec.stage, label(spec.offload), spec.workers.max)
    choices = plan_spec(spec, memory=room.memory, profile=profile).choices
    return next((each for each in choices if (each.stage, each.offload, each.workers) == mine), None)


def activations(spec: JobSpec, profile_of: ProfileOf) -> dict[str, int]:
    """What one micro-batch needs at most on top of states and traffic, as it is and with its blocks recomputed."""
    found = {}
    for name, recomputed in (("plain", False), ("checkpointed", True)):
        training = spec.training.model_copy(update={"activation_checkpointing": recomputed})
        profile = profile_of(spec.model_copy(update={"training": training}))
        if profile is not None and profile.passing:
            found[name] = sum(profile.passing.values())
    return found


# ---- what would fit ------------------------------------------------------------------------------------------------


def nearest(spec: JobSpec, room: Room, *, most_workers: int = MOST_WORKERS) -> str:
    """What to change so that it fits: stage and offload, then the micro-batch, then more workers."""
    for trial, words in _trials(spec, most_workers):
        profile = room.profile_of(trial)
        if profile is None:
            break
        plan = plan_spec(trial, memory=room.memory, profile=profile)
        fitting = (each for each in plan.choices if each.fits and each.workers == trial.workers.max)
        if (found := next(fitting, None)) is not None:
            return f"use {words}stage: {found.stage} with offload: {found.offload}, which fits"
    return f"take a smaller model (a tenth of the memory stays free: {MARGIN:g} of it is used)"


def _trials(spec: JobSpec, most_workers: int) -> Iterator[tuple[JobSpec, str]]:
    yield spec, ""
    for size in micro_sizes(spec):
        if size < spec.training.micro_batch_size:
            yield with_micro(spec, size), f"training.micro_batch_size: {size}, "
    workers = 2 * spec.workers.max
    while workers <= most_workers:
        more = WorkerBounds(min=workers, max=workers)
        yield spec.model_copy(update={"workers": more}), f"workers: {workers}, "
        workers *= 2
