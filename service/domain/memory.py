"""Bytes per rank and elements moved per step, in closed form.

Sources: ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054, sections 3, 5 and 7): model states of mixed-precision Adam are
(2 + 2 + K)P bytes with K = 12, sharded stage by stage; traffic is 2P elements for data parallelism and stages 1, 2 at
one micro-batch, 3P for stage 3. Activations: Korthikanti et al. 2022 (arXiv:2205.05198), equations 1 and 2, without the
attention matrix, which fused attention never stores. P: parameters, N: ranks, k: micro-batches of a rank in a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from service.domain.presets import Shape
from service.domain.spec import PrecisionSpec
from service.domain.training import TrainingSpec

DEFAULT = TrainingSpec()
ITEM_BYTES: Mapping[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2}
# fp32 values per token that a block keeps beside its activations: mean and deviation of two norms; attention adds one
# per head.
NORM_VALUES = 4
# Reductions, and gathers, under way at once in stages 2 and 3: one travels while the next is prepared.
DEPTH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Bytes per parameter element that each kind of model state takes where it is not sharded."""

    param: int
    grad: int
    master: int
    moments: float
    # Of a parameter that is not trained, which has nothing else.
    frozen: int = 2


# fp32 values that an optimizer keeps beside the master; an average of the weights is one more.
_MOMENTS = {"adamw": 2, "adam": 2, "adagrad": 1, "lion": 1, "muon": 2}


def recipe(
    precision: PrecisionSpec, *, stage: int, training: TrainingSpec = DEFAULT, matrix_share: float = 0.0
) -> Recipe:
    """What our engine keeps. In fp32, and at stage 3, the parameter is its own master: stage 3 casts the fp32 shard
    while it is gathered, keeps no two-byte copy beside it, and sums gradients in fp32. matrix_share: the part of all
    elements of which Muon keeps one moment and not two."""
    grad = ITEM_BYTES["fp32" if stage == 3 else precision.params]
    kept = _MOMENTS.get(training.optimizer.name, float(training.optimizer.momentum > 0))
    kept -= matrix_share if training.optimizer.name == "muon" else 0
    moments = 4 * (kept + (training.ema_decay is not None))
    own = ITEM_BYTES[precision.params]
    if stage == 3 or own == 4:
        return Recipe(param=4, grad=grad, master=0, moments=moments, frozen=own)
    return Recipe(param=own, grad=grad, master=4, moments=moments, frozen=own)


def fsdp_rests_as(stage: int) -> int:
    """Our stage whose states between steps are those of FSDP2 at this one: parameters are fp32 shards at stage 2 as at
    stage 3, cast while they are gathered, and where nothing is sharded the whole is one shard."""
    return 3 if stage else 0


def fsdp_elements_per_step(
    *, numel: int, root_numel: int, workers: int, stage: int, micro_batches: int, parts: int | None = None
) -> int:
    """2P, 2kP, and at stage 3 k(3P - R): the root's parameters (R) are not given back between forward and backward.
    parts: of the shards, where they are fewer than the workers; once in a step the copies of a shard are summed."""
    parts, k = parts or (1 if stage == 0 else workers), micro_batches
    if workers == 1:
        return 0
    inside = {0: 0, 2: 2 * k * numel, 3: k * (3 * numel - root_numel)}[stage] if parts > 1 else 0
    return inside + (2 * math.ceil(numel / parts) if parts < workers else 0)


def shard_parts(workers: int, shard_size: int | None) -> int:
    """Into how many parts FSDP2 cuts the state: all workers share one copy where the size does not divide them."""
    return workers if shard_size is None or workers % shard_size else shard_size


def state_bytes(*, numel: int, workers: int, stage: int, recipe: Recipe, frozen: int = 0) -> dict[str, int]:
    """Model states of one rank between steps, by kind; `frozen`: of `numel`, what is not trained. Shards are equal: the
    last one is padded."""
    whole, shard = numel - frozen, math.ceil((numel - frozen) / workers)
    still = math.ceil(frozen / workers) if stage >= 3 else frozen
    return {
        "params": recipe.param * (shard if stage >= 3 else whole) + recipe.frozen * still,
        "grads": recipe.grad * (shard if stage >= 2 else whole),
        "optimizer": round((recipe.master + recipe.moments) * (shard if stage >= 1 else whole)),
    }


def elements_per_step(*, numel: int, workers: int, stage: int, micro_batches: int, matrix_numel: int = 0) -> int:
    """Elements that pass the collectives in a step, an all-reduce counted twice: 2P, 2P, (k+1)P, 3kP. matrix_numel: of
    those that Muon takes whole to one rank each; from stage 1 on they travel there and back, at stage 0 back alone."""
    if workers == 1:
        return 0
    factor = {0: 2, 1: 2, 2: micro_batches + 1, 3: 3 * micro_batches}[stage]
    return factor * numel + (1 if stage == 0 else 2) * matrix_numel


# ---- what comes on top of the states -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Elements of the root unit and of the largest other one, and how many others there are. `trained`: the most of any
    unit that are trained, where some are not."""

    root: int
    block: int
    blocks: int
    trained: int | None = None

    @property
    def largest(self) -> int:
        """Of what is trained: gradients and the optimizer's state are of that alone."""
        return max(self.root, self.block) if self.trained is None else self.trained


def units_of(shape: Shape) -> Units:
    """Each block, and the root with tables and final norm."""
    root = shape.numel - shape.layers * shape.block_numel
    return Units(root=root, block=shape.block_numel, blocks=shape.layers, trained=max(root, shape.block_numel))


def window_bytes(units: Units, *, workers: int, stage: int, precision: PrecisionSpec) -> dict[str, int]:
    """Whole units beyond the shard (stage 3): the root, and of the blocks the one in use and the next one under way.
    Gradients on their way: a vector to send where the gradient at rest cannot be sent as it is, and one for what lands
    from the other ranks."""
    blocks = min(DEPTH, units.blocks) * units.block
    gathered = (units.root + blocks) * ITEM_BYTES[precision.params] if stage == 3 else 0
    sends_a_copy, largest = stage >= 2 or precision.reduce != precision.params, units.largest
    landing = largest * (workers - 1) // workers
    reducing = DEPTH * ((largest if sends_a_copy else 0) + landing) * ITEM_BYTES[precision.reduce]
    return {"gathered_peak": gathered, "buckets_peak": reducing}


def kept_bytes(
    shape: Shape, *, micro_batch_size: int, seq_len: int, precision: PrecisionSpec, checkpointing: bool
) -> int:
    """What a forward leaves for its backward, the loss's own fp32 probabilities among it."""
    tokens = micro_batch_size * seq_len
    return _kept(shape, tokens, precision, checkpointing=checkpointing) + 4 * tokens * shape.vocab


def _kept(shape: Shape, tokens: int, precision: PrecisionSpec, *, checkpointing: bool) -> int:
    """Of the blocks, and at both ends of them."""
    row = ITEM_BYTES[precision.params] * shape.width
    blocks = shape.layers * (row if checkpointing else _block_bytes_per_token(shape, precision))
    return tokens * (blocks + 2 * row)


def activation_bytes(
    shape: Shape, *, micro_batch_size: int, seq_len: int, precision: PrecisionSpec, checkpointing: bool
) -> dict[str, int]:
    """The most that one micro-batch needs: at the loss, or in the backward of the last block, whose gradients come
    while its activations go, or at the end, when both uses of the tied table have left their gradients."""
    tokens, item = micro_batch_size * seq_len, ITEM_BYTES[precision.params]
    kept = _kept(shape, tokens, precision, checkpointing=checkpointing)
    row, table = item * tokens * shape.width, item * shape.vocab * shape.width
    # The log-probabilities, their gradient, and the same in the parameters' type.
    logits = tokens * shape.vocab * (8 + (item if item < 4 else 0))
    recomputed = tokens * _block_bytes_per_token(shape, precision) - row if checkpointing else 0
    grads = item * shape.block_numel
    # Rows come and go, and gradients grow: after the MLP's second matrix, its first, attention, and Q, K and V.
    block = max(5 * row + grads // 3, grads * 2 // 3 - 2 * row, grads * 3 // 4 - 5 * row, grads - 9 * row)
    end = 2 * table + item * shape.context * shape.width + 2 * row
    peak = max(kept - 2 * row + recomputed + table + block, end)
    return {
        "activations_peak": kept,
        "logits_peak": logits,
        "backward_peak": max(0, peak - kept - logits),
    }


def _block_bytes_per_token(shape: Shape, precision: PrecisionSpec) -> int:
    values = shape.token_bytes * ITEM_BYTES[precision.params] // 2
    return values + 4 * (NORM_VALUES + shape.heads)
