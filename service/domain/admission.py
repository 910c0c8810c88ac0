"""Which specs are legal as a whole: rules of two fields and of the machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from service.domain.checkpoint import OBJECT_SCHEMES
from service.domain.choice import OFFLOAD, ProfileOf, Room, choice_of, choose, nearest
from service.domain.cluster import ClusterFacts, SlotKind, slots_per_worker
from service.domain.errors import Problem, SpecRefused
from service.domain.planning import does_not_fit
from service.domain.presets import GPT_CLASSES, GptShape, Shape
from service.domain.profile import profile_of, shape_of
from service.domain.spec import HfModel, JobSpec, TextData, TokensData
from service.domain.text import counted
from service.domain.worker_memory import WorkerMemory

BYTES_VOCAB = 256  # byte-level text needs a token for each byte


# Bytes of the readable files that a glob matches; None where there is none.
SizeOf = Callable[[str], int | None]
TOKEN_BYTES = {"uint8": 1, "uint16": 2, "uint32": 4, "int32": 4, "int64": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An admitted spec, `auto` resolved; `report`: what was decided for the user, field -> sentence."""

    spec: JobSpec
    report: Mapping[str, str]


def admit(
    spec: JobSpec,
    *,
    size_of: SizeOf | None,
    memory: WorkerMemory | None = None,
    machine: ClusterFacts | None = None,
    shape: Shape | None = None,
    names_paths: bool = False,
    quota: Quota | None = None,
    wishes: Collection[str] = (),
    profiles: ProfileOf = profile_of,
    must_fit: bool = True,
) -> Decision:
    """`size_of`: what a glob matches on the machine of the workers; None where that is another one.

    `machine`: what the one machine of the workers has; None where machines may come. `names_paths`: whether the user
    has to say where states rest on a disk, because the machines are not this one. `memory`: of a worker, where it is
    known. `shape`: of a model whose size the spec alone does not tell, where it is known. `quota`: of who submits.
    `wishes`: fields that the user said to be auto. `profiles`: sizes of the spec's model. `must_fit`: into that memory.

    Raises SpecRefused with every problem found.
    """
    shape = shape_of(spec) or shape
    problems = [*_combinations(spec, wishes), *_fsdp(spec), *_deterministic(spec), *_shapes(spec, shape)]
    if machine is not None:
        problems += _machine(spec, machine)
    if names_paths:
        problems += _without_a_folder(spec)
    if quota is not None:
        problems += _beyond(spec, quota)
    if size_of is not None:
        problems += _files(spec, size_of)
    if problems:
        raise SpecRefused(problems)
    has_disk = not names_paths or spec.offload.path is not None
    room = Room(profile_of=profiles, memory=memory, has_disk=has_disk)
    chosen, report = choose(spec, wishes, room)
    if must_fit and (problems := list(_memory(chosen, room, machine))):
        raise SpecRefused(problems)
    return Decision(spec=chosen, report=report if quota is None else {**report, **_within(spec, quota)})


# ---- within the quota ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How many slots of a kind the jobs of the API key `name` may hold together."""

    name: str
    slots: int
    slot_kind: SlotKind

    def workers(self, spec: JobSpec) -> int:
        return self.slots // slots_per_worker(spec.resources, slot_kind=self.slot_kind)


def _beyond(spec: JobSpec, quota: Quota) -> Iterator[Problem]:
    if spec.workers.min > (most := quota.workers(spec)):
        slots = counted(quota.slots, f"{quota.slot_kind} slot")
        problem = f"the key {quota.name!r} has a quota of {slots}: room for {counted(most, 'worker')}"
        fix = (f"use a minimum of at most {most}, or " if most else "") + "have the quota raised: elastane keys quota"
        yield Problem(field="workers.min", value=spec.workers.min, problem=problem, fix=fix)


def _within(spec: JobSpec, quota: Quota) -> dict[str, str]:
    if spec.workers.max <= (most := quota.workers(spec)):
        return {}
    slots = counted(quota.slots, "slot")
    told = f"at most {most} of {spec.workers.max} at once: the key {quota.name!r} has a quota of {slots}"
    return {"workers": told}


# ---- legal together ------------------------------------------------------------------------------------------------


def _combinations(spec: JobSpec, wishes: Collection[str]) -> Iterator[Problem]:
    training = spec.training
    if training.batch_size % training.micro_batch_size:
        fix = f"make batch_size a multiple of micro_batch_size {training.micro_batch_size}"
        problem = f"not a multiple of micro_batch_size {training.micro_batch_size}"
        yield Problem(field="training.batch_size", value=training.batch_size, problem=problem, fix=fix)
    schedule = training.schedule
    if schedule.decay_steps is not None and schedule.warmup_steps + schedule.decay_steps > training.steps:
        fix = f"use at most {max(1, training.steps - schedule.warmup_steps)}, or fewer warmup_steps"
        problem = f"{schedule.warmup_steps} warmup_steps and these are more than the {training.steps} steps there are"
        yield Problem(field="training.schedule.decay_steps", value=schedule.decay_steps, problem=problem, fix=fix)
    if spec.engine == "zero" and spec.offload.params not in (None, "none") and spec.stage in (0, 1, 2):
        fix = "use stage: 3, or offload the optimizer alone"
        problem = f"stage {spec.stage} keeps parameters whole on the device; only stage 3 can offload them"
        yield Problem(field="offload.params", value=spec.offload.params, problem=problem, fix=fix)
    if spec.offload.path is not None and not spec.offload.on_disk and OFFLOAD not in wishes:
        fix = "remove it, or offload to nvme"
        yield Problem(field="offload.path", value=spec.offload.path, problem="nothing is offloaded to nvme", fix=fix)
    if spec.offload.ratio != 1.0 and spec.offload.is_none:
        fix = "remove it, or say offload.optimizer: cpu or nvme"
        yield Problem(field="offload.ratio", value=spec.offload.ratio, problem="nothing is offloaded", fix=fix)
    if spec.checkpoint.uri is not None:
        yield from _store(spec.checkpoint.uri)


def _store(uri: str) -> Iterator[Problem]:
    """As the workers will read it; whether their driver is there and may write, they find out."""
    schemes = ", ".join(f"{scheme}://" for scheme in OBJECT_SCHEMES)
    scheme, mark, rest = uri.partition("://")
    bare = f"{scheme}://..." if mark else uri
    if not mark and not uri.startswith("/"):
        fix = f"use an absolute path, or one of {schemes}"
        yield Problem(field="checkpoint.uri", value=uri, problem="relative to nothing in particular", fix=fix)
    elif mark and scheme not in (*OBJECT_SCHEMES, "file"):
        fix = f"use an absolute path, or one of {schemes}"
        yield Problem(field="checkpoint.uri", value=bare, problem=f"{scheme} is no store", fix=fix)
    elif mark and ("@" in rest.partition("/")[0] or "?" in rest):
        fix = "leave them to the environment of the workers"
        yield Problem(field="checkpoint.uri", value=bare, problem="holds credentials or options", fix=fix)


def _without_a_folder(spec: JobSpec) -> Iterator[Problem]:
    if spec.offload.on_disk and spec.offload.path is None:
        problem = "the workers run on other machines, whose fast disk is not known here"
        fix = "give the absolute path of a folder on a local disk that each of them has"
        yield Problem(field="offload.path", value=None, problem=problem, fix=fix)


def _fsdp(spec: JobSpec) -> Iterator[Problem]:
    """What torch's FSDP2 has not: our ZeRO has it. And the reverse."""
    if spec.shard_size is not None and (spec.engine != "fsdp" or spec.stage == 0):
        problem = "ZeRO shards over all workers" if spec.engine != "fsdp" else "stage 0 shards nothing"
        fix = "remove it, or use engine: fsdp at stage 2 or 3 (HYBRID_SHARD)"
        yield Problem(field="shard_size", value=spec.shard_size, problem=problem, fix=fix)
    if spec.engine != "fsdp":
        return
    offload, fix = spec.offload, "use engine: zero, or offload: cpu"
    if spec.stage == 1:
        problem = "FSDP2 has 3 (FULL_SHARD), 2 (SHARD_GRAD_OP) and 0 (NO_SHARD)"
        yield Problem(field="stage", value=1, problem=problem, fix="use stage: 2 or 3, or engine: zero")
    if spec.training.optimizer.name == "muon":
        problem = "Muon needs whole matrices, and FSDP2 cuts them"
        yield Problem(field="training.optimizer.name", value="muon", problem=problem, fix="use engine: zero, or adamw")
    for field, tier in (("offload.optimizer", offload.optimizer), ("offload.params", offload.params)):
        if tier == "nvme":
            yield Problem(field=field, value=tier, problem="FSDP2 offloads to the CPU alone", fix=fix)
    if {offload.optimizer, offload.params or offload.optimizer} == {"none", "cpu"}:
        problem = "FSDP2 offloads parameters and optimizer together"
        yield Problem(field="offload.params", value=offload.params, problem=problem, fix=fix)
    if offload.ratio != 1.0:
        problem = "FSDP2 offloads all or nothing"
        yield Problem(field="offload.ratio", value=offload.ratio, problem=problem, fix=fix)


def _machine(spec: JobSpec, machine: ClusterFacts) -> Iterator[Problem]:
    """What one worker needs and this machine will never have. More workers than slots may wait: a job can be scaled."""
    if machine.slot_kind == "cpu":
        yield from _without_gpus(spec)
    slots, each = machine.max_slots, slots_per_worker(spec.resources, slot_kind=machine.slot_kind)
    field = "gpu" if machine.slot_kind == "gpu" else "cpu"
    if each > slots:
        problem = f"one worker needs {counted(each, 'slot')} and this machine has {slots}"
        fix = f"ask for at most {slots}, or start the service with more --slots"
        yield Problem(field=f"resources.{field}", value=getattr(spec.resources, field), problem=problem, fix=fix)
    memory_gb, asked = sum(node.memory_bytes or 0 for node in machine.nodes) / 2**30, spec.resources.memory_gb
    least = spec.workers.min
    if machine.slot_kind == "cpu" and asked is not None and memory_gb and asked * least > memory_gb:
        problem = (
            f"{counted(least, 'worker')} of {asked:g} GB need more than the {memory_gb:.1f} GB that this machine offers"
        )
        fix = f"ask for at most {math.floor(memory_gb / least * 10) / 10:g}"
        yield Problem(field="resources.memory_gb", value=asked, problem=problem, fix=fix)


def _deterministic(spec: JobSpec) -> Iterator[Problem]:
    """What would break the promise of the same bits."""
    if not spec.deterministic:
        return
    reasons = (
        (spec.engine == "fsdp", "FSDP2 sums rank by rank, in an order that depends on their number", "engine: zero"),
        (spec.training.optimizer.name == "muon", "what Muon makes of a matrix depends on how ranks cut it", "adamw"),
        (
            spec.precision.params != "fp32" or spec.precision.reduce != "fp32",
            "only fp32 is promised",
            "precision: fp32",
        ),
        (bool(spec.resources.gpu), "GPUs sum in orders of their own", "resources: {cpu: 1}"),
    )
    for broken, problem, instead in reasons:
        if broken:
            yield Problem(field="deterministic", value=True, problem=problem, fix=f"use {instead}, or leave it out")


def _without_gpus(spec: JobSpec) -> Iterator[Problem]:
    problem, fix = "the machine of this service has no GPU", "leave resources out, or ask for {cpu: 1}"
    if spec.resources.gpu:
        yield Problem(field="resources.gpu", value=spec.resources.gpu, problem=problem, fix=fix)
    if spec.resources.accelerator is not None:
        yield Problem(field="resources.accelerator", value=spec.resources.accelerator, problem=problem, fix=fix)


def _shapes(spec: JobSpec, shape: Shape | None) -> Iterator[Problem]:
    if shape is None:
        return
    for name in () if spec.units == "auto" or not isinstance(shape, GptShape) else spec.units.layers or ():
        if name not in GPT_CLASSES:
            fix = f"name one of {', '.join(GPT_CLASSES)}"
            yield Problem(field="units.layers", value=name, problem="the model has no module of that class", fix=fix)
    if spec.training.seq_len > shape.context:
        fix = f"use at most {shape.context}"
        problem = f"longer than the model's context {shape.context}"
        yield Problem(field="training.seq_len", value=spec.training.seq_len, problem=problem, fix=fix)
    if (spec.data == "stdlib" or isinstance(spec.data, TextData)) and shape.vocab < BYTES_VOCAB:
        fix = f"use vocab: {BYTES_VOCAB} or more, or tokens of your own"
        problem = f"text is read as bytes and needs a vocabulary of {BYTES_VOCAB}"
        field = "model.hf" if isinstance(spec.model, HfModel) else "model.vocab"
        yield Problem(field=field, value=shape.vocab, problem=problem, fix=fix)


def files_of(spec: JobSpec) -> tuple[str, ...]:
    """The globs and paths of which the workers' machine must have a file."""
    place = data_of(spec)
    return (*config_of(spec), *(() if place is None else (place,)))


def data_of(spec: JobSpec) -> str | None:
    """Where the workers will look for it; None where there is nothing to look for, or not on this machine."""
    if isinstance(spec.data, TextData):
        return spec.environment.seen_from(spec.data.text)
    return spec.environment.seen_from(spec.data.tokens) if isinstance(spec.data, TokensData) else None


def config_of(spec: JobSpec) -> tuple[str, ...]:
    """Of a model in a folder; an id is looked up by the workers."""
    if not isinstance(spec.model, HfModel) or not spec.model.hf.startswith("/"):
        return ()
    return (f"{spec.model.hf.rstrip('/')}/config.json",)


def _files(spec: JobSpec, size_of: SizeOf) -> Iterator[Problem]:
    for path in config_of(spec):
        if size_of(path) is None:
            fix = "give a folder with config.json, or an id of the hub"
            yield Problem(field="model.hf", value=path, problem="there is no such file", fix=fix)
    place = data_of(spec)
    if place is None:
        return
    if isinstance(spec.data, TextData):
        fix = "give a glob that matches a readable file on this machine"
        yield from _data("data.text", place, size_of, 1, spec.training.seq_len, "matches no file", fix)
    elif isinstance(spec.data, TokensData):
        item_bytes = TOKEN_BYTES[spec.data.dtype]
        fix = "give the path of a readable file on this machine"
        yield from _data("data.tokens", place, size_of, item_bytes, spec.training.seq_len, "there is no such file", fix)
        if (size_of(place) or 0) % item_bytes:
            problem = f"the file's {size_of(place)} bytes are no multiple of {item_bytes}"
            fix = "give the type that the file has"
            yield Problem(field="data.dtype", value=spec.data.dtype, problem=problem, fix=fix)


def _data(
    field: str, path: str, size_of: SizeOf, item_bytes: int, seq_len: int, absent: str, fix: str
) -> Iterator[Problem]:
    """A sample is seq_len tokens and the one that follows."""
    size = size_of(path)
    if size is None:
        yield Problem(field=field, value=path, problem=absent, fix=fix)
    elif size // item_bytes <= seq_len:
        found = counted(size // item_bytes, "token")
        problem = f"it has {found}, fewer than one sample of training.seq_len + 1 = {seq_len + 1}"
        yield Problem(field=field, value=path, problem=problem, fix="give more data or a smaller training.seq_len")


# ---- does it fit ---------------------------------------------------------------------------------------------------


def _memory(spec: JobSpec, room: Room, machine: ClusterFacts | None) -> Iterator[Problem]:
    """At the most workers that the job may have, where a worker needs least."""
    apart, asked = room.memory is not None and room.memory.apart, spec.resources.memory_gb
    if asked is None and not apart:
        yield from _whole_machine(spec, room, machine)
        return
    choice = choice_of(spec, room)
    if room.memory is None or choice is None or choice.fits:
        return
    problem, near = does_not_fit(choice, room.memory), nearest(spec, room)
    if apart:
        fix = f"{near}; or have workers with a larger accelerator"
        yield Problem(field="resources.accelerator", value=spec.resources.accelerator, problem=problem, fix=fix)
    else:
        yield Problem(field="resources.memory_gb", value=asked, problem=problem, fix=f"raise it, or {near}")


def _whole_machine(spec: JobSpec, room: Room, machine: ClusterFacts | None) -> Iterator[Problem]:
    """What one worker needs that not even all of the machine's memory could hold, at the most workers it may have."""
    whole = 0 if machine is None or machine.slot_kind == "gpu" else max(n.memory_bytes or 0 for n in machine.nodes)
    memory = WorkerMemory(device_bytes=whole)
    room = replace(room, memory=memory)
    choice = choice_of(spec, room) if whole else None
    if choice is not None and not choice.fits:
        problem = f"{does_not_fit(choice, memory)} of this machine's {whole / 2**30:.1f} GB"
        fix = nearest(spec, room, most_workers=spec.workers.max)
        yield Problem(field="workers.max", value=spec.workers.max, problem=problem, fix=fix)
