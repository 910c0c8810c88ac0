"""A plan of a spec: every stage at every number of workers worth a line, what fits, what is recommended and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from service.domain.batching import rounds
from service.domain.errors import Problem, SpecRefused
from service.domain.memory import (
    ITEM_BYTES,
    elements_per_step,
    fsdp_elements_per_step,
    fsdp_rests_as,
    recipe,
    shard_parts,
    state_bytes,
    window_bytes,
)
from service.domain.offload import WHOLE, by_tier, fitting_ratio, in_memory, label, resting, staging_bytes
from service.domain.plan import Plan, PlanChoice, Recommendation
from service.domain.profile import Profile, profile_of
from service.domain.spec import JobSpec, Offload
from service.domain.text import counted
from service.domain.worker_memory import WorkerMemory

STAGES = {"zero": (0, 1, 2, 3), "fsdp": (0, 2, 3)}
# The kinds that a rank holds between steps.
STATES = ("params", "grads", "optimizer")
_WHY = {
    0: "one worker: there is nothing to shard, and nothing moves",
    1: "moves no more than plain data parallelism and keeps the optimizer's state once in the group",
    2: "the optimizer's state alone is not enough to fit; sharding gradients as well costs little more traffic",
    3: "parameters themselves have to be sharded to fit, at about 1.5 times the traffic",
}


def plan_spec(spec: JobSpec, *, memory: WorkerMemory | None, profile: Profile | None = None) -> Plan:
    """memory: of a worker, where it is known. profile: of a model that is none of ours. Raises SpecRefused where its
    size is not known."""
    profile = profile or profile_of(spec)
    if profile is None:
        fix = "plan a preset or {name: gpt, ...} of about the same size"
        raise SpecRefused([Problem(field="model", value="...", problem="its size is not known here", fix=fix)])
    sizes, asked = _sizes(spec), not spec.offload.is_none
    choices = tuple(
        _choice(spec, profile, stage, workers, offload, memory)
        for offload in _offloads(spec)
        for stage in STAGES[spec.engine]
        for workers in sizes
    )
    return Plan(
        model=profile.name,
        numel=profile.numel,
        unit_numels={"block": profile.units.block, "root": profile.units.root},
        micro_batches=spec.training.batch_size // spec.training.micro_batch_size,
        capacity_bytes=None if memory is None else memory.device_bytes,
        host_capacity_bytes=None if memory is None else memory.host_bytes,
        choices=choices,
        recommendation=recommend(spec, choices, memory, offloads=[spec.offload] if asked else _offloads(spec)),
    )


def rank_bytes(
    spec: JobSpec,
    profile: Profile,
    *,
    stage: int,
    workers: int,
    offload: Offload | None = None,
    budget_bytes: int | None = None,
) -> dict[str, dict[str, int]]:
    """kind -> tier -> bytes of one rank: its states between steps, and what a step needs on top.

    offload: the spec's own where none is given. budget_bytes: memory that a ratio of `auto` leaves the states in.
    """
    offload = offload or spec.offload
    held = stage if spec.engine == "zero" else fsdp_rests_as(stage)
    tiers, passing = resting(offload, stage=held), passing_bytes(spec, profile, stage=stage, workers=workers)
    # FSDP2's parameters are fp32 and their own master at every stage, as ours are at stage 3.
    recipe_of = stage if spec.engine == "zero" else 3
    rule = recipe(spec.precision, stage=recipe_of, training=spec.training, matrix_share=profile.matrix_share)
    if spec.engine == "fsdp":
        rule = replace(rule, frozen=rule.param)
    parts = shard_parts(workers, spec.shard_size)
    states = state_bytes(numel=profile.numel, frozen=profile.frozen, workers=parts, stage=held, recipe=rule)
    states = _as_measured(states, profile)
    ratio = fitting_ratio(offload, states, tiers=tiers, passing_bytes=sum(passing.values()), budget_bytes=budget_bytes)
    largest = profile.units.largest
    staging = staging_bytes(largest_unit=largest, workers=workers, stage=stage, recipe=rule, tiers=tiers)
    return {
        **by_tier(states, tiers=tiers, ratio=ratio),
        **{kind: {"device": size} for kind, size in passing.items()},
        **({"staging_peak": {"cpu": staging}} if staging and ratio else {}),
    }


def passing_bytes(spec: JobSpec, profile: Profile, *, stage: int, workers: int) -> dict[str, int]:
    """What a step needs on top of the states."""
    return _as_measured({**_window(spec, profile, stage=stage, workers=workers), **profile.passing}, profile)


def _as_measured(kinds: Mapping[str, int], profile: Profile) -> dict[str, int]:
    return {kind: round(size * profile.factors.get(kind, 1.0)) for kind, size in kinds.items()}


def auto_ratio(spec: JobSpec, *, stage: int, numel: int, workers: int, budget_bytes: int) -> float:
    """The part to offload of a model of any kind; what a step needs on top is known of our own alone."""
    profile = profile_of(spec)
    passing = passing_bytes(spec, profile, stage=stage, workers=workers) if profile is not None else {}
    share = profile.matrix_share if profile is not None else 0.0
    rule = recipe(spec.precision, stage=stage, training=spec.training, matrix_share=share)
    return fitting_ratio(
        spec.offload,
        state_bytes(numel=numel, workers=workers, stage=stage, recipe=rule),
        tiers=resting(spec.offload, stage=stage),
        passing_bytes=sum(passing.values()),
        budget_bytes=budget_bytes,
    )


def _offloads(spec: JobSpec) -> tuple[Offload, ...]:
    """None, each tier whole, and the spec's own where it is another."""
    own = () if label(spec.offload) in map(label, WHOLE) else (spec.offload,)
    return (*WHOLE, *own) if spec.engine == "zero" else (*WHOLE[:2], *own)


def _window(spec: JobSpec, profile: Profile, *, stage: int, workers: int) -> dict[str, int]:
    if spec.engine == "zero":
        return window_bytes(profile.units, workers=workers, stage=stage, precision=spec.precision)
    window = window_bytes(profile.units, workers=workers, stage=3, precision=spec.precision)
    if stage == 2 and workers > 1:
        window["gathered_peak"] = profile.numel * ITEM_BYTES[spec.precision.params]
    return window


def _elements(spec: JobSpec, profile: Profile, *, stage: int, workers: int, turns: int) -> int:
    numel = profile.numel
    if spec.engine == "zero":
        # In deterministic mode every micro-batch's gradient crosses the group by itself, as it does from stage 2 on.
        moves_as = max(2, stage) if spec.deterministic else stage
        matrices = profile.matrices if spec.training.optimizer.name == "muon" else 0
        return elements_per_step(
            numel=numel, workers=workers, stage=moves_as, micro_batches=turns, matrix_numel=matrices
        )
    parts = 1 if stage == 0 else shard_parts(workers, spec.shard_size)
    return fsdp_elements_per_step(
        numel=numel,
        root_numel=profile.units.root,
        workers=workers,
        stage=stage,
        micro_batches=turns,
        parts=parts,
    )


def _sent_bytes(spec: JobSpec, elements: int, *, stage: int, workers: int, turns: int) -> int:
    """By a rank in a step: gradients in the type of reductions, parameters that are gathered in their own."""
    gathers_once = spec.engine == "zero" and stage == 2
    reduced = turns / (turns + 1) if gathers_once else {0: 1.0, 1: 0.5, 2: 0.5, 3: 1 / 3}[stage]
    item = reduced * ITEM_BYTES[spec.precision.reduce] + (1 - reduced) * ITEM_BYTES[spec.precision.params]
    return round(elements * item * (workers - 1) / workers)


def _sizes(spec: JobSpec) -> tuple[int, ...]:
    """The bounds, and the powers of two between them."""
    low, high = spec.workers.min, spec.workers.max
    return tuple(sorted({low, high, *(2**n for n in range(13) if low <= 2**n <= high)}))


def _choice(
    spec: JobSpec, profile: Profile, stage: int, workers: int, offload: Offload, memory: WorkerMemory | None
) -> PlanChoice:
    training = spec.training
    budget = None if memory is None else memory.budget_bytes
    kinds = rank_bytes(spec, profile, stage=stage, workers=workers, offload=offload, budget_bytes=budget)
    turns = rounds(training.batch_size // training.micro_batch_size, world_size=workers)
    elements = _elements(spec, profile, stage=stage, workers=workers, turns=turns)
    return PlanChoice(
        stage=stage,
        offload=label(offload),
        workers=workers,
        bytes_by_kind=kinds,
        states_bytes=sum(sum(kinds[kind].values()) for kind in STATES),
        total_bytes=sum(sum(tiers.values()) for tiers in kinds.values()),
        elements_per_step=elements,
        bytes_per_step=_sent_bytes(spec, elements, stage=stage, workers=workers, turns=turns),
        fits=None if memory is None else memory.holds(kinds),
        note=f"{turns} micro-batches per rank and step{'' if profile.passing else '; activations are not known'}",
    )


def recommend(
    spec: JobSpec,
    choices: Sequence[PlanChoice],
    memory: WorkerMemory | None,
    *,
    offloads: Sequence[Offload],
    keep_stage: bool = False,
) -> Recommendation:
    """The least traffic that fits, by the first of `offloads` that does; stage 1 before stage 0: it moves the same.
    keep_stage: only the spec's own, where it says one."""
    workers = spec.workers.max
    order: tuple[int, ...] = (0, 3) if workers == 1 else (1, 2, 3)
    order = tuple(stage for stage in order if stage in STAGES[spec.engine])
    if spec.stage != "auto" and keep_stage:
        order = (spec.stage,)
    if spec.engine == "zero" and spec.offload.params not in (None, "none"):
        order = (3,)
    table = {(choice.offload, choice.stage): choice for choice in choices if choice.workers == workers}
    ranked = [table[label(offload), stage] for offload in offloads for stage in order]
    found = next((choice for choice in ranked if memory is None or choice.fits), None)
    if memory is None or found is not None:
        found = found or ranked[0]
        return Recommendation(stage=found.stage, offload=found.offload, workers=workers, why=_why(found, memory))
    least = min(ranked, key=lambda choice: memory.share(choice.bytes_by_kind))
    why = f"nothing fits: {does_not_fit(least, memory)}; take more workers, a smaller micro-batch or a smaller model"
    return Recommendation(stage=least.stage, offload=least.offload, workers=workers, why=why)


def does_not_fit(choice: PlanChoice, memory: WorkerMemory) -> str:
    offload = "" if choice.offload == "none" else f", offload {choice.offload}"
    where = f"on {counted(choice.workers, 'worker')}"
    return f"stage {choice.stage}{offload} {where} {memory.shortage(choice.bytes_by_kind)}"


def _why(choice: PlanChoice, memory: WorkerMemory | None) -> str:
    kinds, stage = choice.bytes_by_kind, choice.stage
    known = "" if memory is not None else "; the memory of a worker is not known here, so nothing was ruled out"
    size = f"{in_memory(kinds) if memory is None else memory.needed(kinds)} bytes per worker"
    where = "" if choice.offload == "none" else f", offload {choice.offload}"
    return f"stage {stage}{where}: {_WHY[stage]}; {size}{known}"
