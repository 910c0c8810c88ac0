"""What a plan has to know of a model: sizes, and what one micro-batch keeps. Of ours by formula; of any other as a
process of the data plane describes it, traced, without the memory of its parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.domain.memory import Units, activation_bytes, kept_bytes, units_of
from service.domain.presets import PRESETS, GptShape, Shape
from service.domain.spec import GptModel, HfModel, JobSpec, PythonData
from service.domain.training import TrainingSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Elements: `numel` in all, `frozen` and `matrices` (of repeated blocks) of them. `passing`: kind -> peak bytes of
    one micro-batch of the spec. `kept`: what its forward leaves for its backward, as a worker measures it; None where
    activations could not be traced. `operations`: on matrices, of its forward and backward, where they are known.
    `factors`: kind -> measured over predicted, where an earlier job has measured."""

    name: str
    numel: int
    units: Units
    frozen: int = 0
    matrices: int = 0
    passing: Mapping[str, int]
    kept: int | None
    operations: float | None = None
    factors: Mapping[str, float] = field(default_factory=dict)

    @property
    def matrix_share(self) -> float:
        return self.matrices / max(self.numel, 1)


def shape_of(spec: JobSpec) -> GptShape | None:
    """None for models whose size the spec alone does not tell."""
    if isinstance(spec.model, str):
        return PRESETS[spec.model]
    if isinstance(spec.model, GptModel):
        model = spec.model
        return GptShape(
            layers=model.layers, width=model.width, heads=model.heads, vocab=model.vocab, context=model.context
        )
    return None


def profile_of(spec: JobSpec, *, shape: Shape | None = None) -> Profile | None:
    """Of a GPT of ours, and of one whose `shape` is known; None for any other model."""
    shape, training = shape_of(spec) or shape, spec.training
    if shape is None:
        return None
    facts: dict[str, Any] = {
        "micro_batch_size": training.micro_batch_size,
        "seq_len": training.seq_len,
        "precision": spec.precision,
        "checkpointing": bool(training.activation_checkpointing),
    }
    return Profile(
        name=_name(spec),
        numel=shape.numel,
        units=units_of(shape),
        matrices=shape.layers * shape.block_matrix_numel,
        passing=activation_bytes(shape, **facts),
        kept=kept_bytes(shape, **facts),
        # Samples of the user's have a length of their own.
        operations=None if isinstance(spec.data, PythonData) else operations_of(shape, training),
    )


def operations_of(shape: Shape, training: TrainingSpec) -> float:
    """Of a forward and a backward of one micro-batch: a backward is two products for each of the forward's, and for an
    attention, which is computed again in it, two and a half (PaLM, Chowdhery et al. 2022, arXiv:2204.02311, appendix B;
    FlashAttention, Dao et al. 2022, arXiv:2205.14135). A block that is recomputed stops before its last product, the
    second of its MLP, for nothing of that is kept; the reentrant kind makes all of it."""
    tokens, seq_len = training.micro_batch_size * training.seq_len, training.seq_len
    blocks = 2.0 * tokens * shape.layers * shape.block_matrix_numel
    attention = 4.0 * tokens * shape.layers * seq_len * shape.width
    head = 2.0 * tokens * shape.vocab * shape.width
    again = {False: 0.0, True: 2 / 3 * blocks + attention, "reentrant": blocks + attention}
    return 3 * (blocks + head) + 3.5 * attention + again[training.activation_checkpointing]


def _name(spec: JobSpec) -> str:
    if isinstance(spec.model, HfModel):
        return spec.model.hf
    return spec.model if isinstance(spec.model, str) else "gpt"


def described(spec: JobSpec, description: Mapping[str, Any]) -> Profile:
    """From what `python -m workers.worker.describe` answered, which traced `micro_batch_size` samples."""
    share = spec.training.micro_batch_size / int(description["micro_batch_size"])
    root, *others = (int(unit["numel"]) for unit in description["units"])
    trained = max(int(unit.get("trained", unit["numel"])) for unit in description["units"])
    kind = "checkpointed" if spec.training.activation_checkpointing else "plain"
    traced = (description["activations"] or {}).get(kind)
    kept, peak = (
        (0, 0) if traced is None else (math.ceil(share * int(traced[of])) for of in ("kept_bytes", "peak_bytes"))
    )
    passing = {} if traced is None else {"activations_peak": kept, "backward_peak": max(0, peak - kept)}
    return Profile(
        name=str(description["model"]),
        numel=int(description["numel"]),
        units=Units(root=root, block=max(others, default=0), blocks=len(others), trained=trained),
        frozen=int(description["frozen"]),
        matrices=int(description["matrices"]),
        passing=passing,
        kept=None if traced is None else kept,
        operations=None if traced is None else share * traced["operations"],
    )
