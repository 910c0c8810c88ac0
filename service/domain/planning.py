"""A plan of a spec: every stage at every number of workers worth a line, what fits, what is recommended and why."""

from __future__ import annotations

from service.domain.batching import rounds
from service.domain.errors import Problem, SpecRefused
from service.domain.memory import (
    activation_bytes,
    elements_per_step,
    recipe,
    state_bytes,
    unit_numels,
    window_bytes,
)
from service.domain.plan import Plan, PlanChoice, Recommendation
from service.domain.presets import PRESETS, GptShape, gpt_numel, matrix_share
from service.domain.spec import GptModel, JobSpec

STAGES = (0, 1, 2, 3)
# The kinds that a rank holds between steps.
STATES = ("params", "grads", "optimizer")
# What a plan leaves free of a device: the allocator's slack and what the formulas do not see.
MARGIN = 0.9
_WHY = {
    0: "one worker: there is nothing to shard, and nothing moves",
    1: "moves no more than plain data parallelism and keeps the optimizer's state once in the group",
    2: "the optimizer's state alone is not enough to fit; sharding gradients as well costs little more traffic",
    3: "parameters themselves have to be sharded to fit, at about 1.5 times the traffic",
}


def shape_of(spec: JobSpec) -> GptShape | None:
    """None for models whose size only the data plane can tell."""
    if isinstance(spec.model, str):
        return PRESETS[spec.model]
    if isinstance(spec.model, GptModel):
        model = spec.model
        return GptShape(
            layers=model.layers, width=model.width, heads=model.heads, vocab=model.vocab, context=model.context
        )
    return None


def plan_spec(spec: JobSpec, *, capacity_bytes: int | None) -> Plan:
    """Raises SpecRefused for a model whose size is not known here."""
    shape = shape_of(spec)
    if shape is None:
        fix = "plan a preset or {name: gpt, ...} of about the same size; planning any module comes later"
        raise SpecRefused([Problem(field="model", value="...", problem="its size is not known yet", fix=fix)])
    sizes = _sizes(spec)
    choices = tuple(_choice(spec, shape, stage, workers, capacity_bytes) for stage in STAGES for workers in sizes)
    units = unit_numels(shape)
    return Plan(
        model=spec.model if isinstance(spec.model, str) else "gpt",
        numel=gpt_numel(shape),
        unit_numels=units,
        micro_batches=spec.training.batch_size // spec.training.micro_batch_size,
        capacity_bytes=capacity_bytes,
        choices=choices,
        recommendation=_recommend(choices, spec.workers.max, capacity_bytes),
    )


def rank_bytes(spec: JobSpec, shape: GptShape, *, stage: int, workers: int) -> dict[str, int]:
    """Bytes of one rank by kind: its states between steps, and what a step needs on top."""
    training = spec.training
    rule = recipe(spec.precision, stage=stage, training=spec.training, matrix_share=matrix_share(shape))
    return {
        **state_bytes(numel=gpt_numel(shape), workers=workers, stage=stage, recipe=rule),
        **window_bytes(shape, workers=workers, stage=stage, precision=spec.precision),
        **activation_bytes(
            shape,
            micro_batch_size=training.micro_batch_size,
            seq_len=training.seq_len,
            precision=spec.precision,
            checkpointing=training.activation_checkpointing,
        ),
    }


def _sizes(spec: JobSpec) -> tuple[int, ...]:
    """The bounds, and the powers of two between them."""
    low, high = spec.workers.min, spec.workers.max
    return tuple(sorted({low, high, *(2**n for n in range(13) if low <= 2**n <= high)}))


def _choice(spec: JobSpec, shape: GptShape, stage: int, workers: int, capacity: int | None) -> PlanChoice:
    training = spec.training
    kinds = rank_bytes(spec, shape, stage=stage, workers=workers)
    total = sum(kinds.values())
    turns = rounds(training.batch_size // training.micro_batch_size, world_size=workers)
    return PlanChoice(
        stage=stage,
        offload="none",
        workers=workers,
        bytes_by_kind={kind: {"device": size} for kind, size in kinds.items()},
        states_bytes=sum(kinds[kind] for kind in STATES),
        total_bytes=total,
        elements_per_step=elements_per_step(numel=gpt_numel(shape), workers=workers, stage=stage, micro_batches=turns),
        fits=None if capacity is None else total <= MARGIN * capacity,
        note=f"{turns} micro-batches per rank and step",
    )


def _recommend(choices: tuple[PlanChoice, ...], workers: int, capacity: int | None) -> Recommendation:
    """The least traffic that fits; stage 1 before stage 0, because it moves the same."""
    order = (0, 3) if workers == 1 else (1, 2, 3)
    at_size = {choice.stage: choice for choice in choices if choice.workers == workers}
    for stage in order:
        if at_size[stage].fits is not False:
            return Recommendation(stage=stage, offload="none", workers=workers, why=_why(stage, at_size[stage]))
    least = at_size[order[-1]]
    why = (
        f"nothing fits: stage {least.stage} on {workers} workers needs {least.total_bytes} bytes per worker, "
        f"{int(MARGIN * (capacity or 0))} can be used; take more workers, a smaller micro-batch or a smaller model"
    )
    return Recommendation(stage=least.stage, offload="none", workers=workers, why=why)


def _why(stage: int, choice: PlanChoice) -> str:
    known = "" if choice.fits else "; the memory of a worker is not known here, so nothing was ruled out"
    return f"stage {stage}: {_WHY[stage]}; {choice.total_bytes} bytes per worker{known}"
