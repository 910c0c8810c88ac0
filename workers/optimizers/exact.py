"""A sum of squares whose bits do not depend on how its elements are cut over ranks. See Note [Exact squares]."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

# Note [Exact squares]
# The bits of a floating-point sum depend on where the ranks' shards end; those of a sum of integers do not. Each
# element, over the power of two that bounds them all, is squared in fp64 (exact: 24 bits twice) and written as
# high / 2^30 + low / 2^60, two integers. A window's sum of either stays below 2^53, so fp64 holds it exactly.
DIGIT = 30
WINDOW_NUMEL = 1 << 22
# Sums travel as fp64 in words of 32 bits, which sums over ranks keep exact as well.
WORD = 1 << 32


def largest(grads: Sequence[Tensor]) -> float:
    """Of all magnitudes; infinity where something is not finite."""
    peaks = [float(grad.abs().max()) for grad in grads if grad.numel()]
    return max(peaks, default=0.0) if all(map(math.isfinite, peaks)) else math.inf


def squares(grads: Sequence[Tensor], peak: float) -> tuple[tuple[float, ...], int]:
    """The sum of squares in words, for `joined`; and how many elements are not finite. peak: `largest` of all ranks."""
    if not math.isfinite(peak):
        return (0.0,) * 4, sum(int(grad.isfinite().logical_not().sum()) for grad in grads)
    high = low = 0
    scale = math.ldexp(1.0, -math.frexp(peak)[1])
    for window in (window for grad in grads for window in torch.split(grad, WINDOW_NUMEL)):
        values = window.double().mul_(scale).square_().mul_(2.0**DIGIT)
        digits = values.floor()
        high += int(digits.sum())
        low += int(values.sub_(digits).mul_(2.0**DIGIT).floor_().sum())
    return tuple(map(float, (*divmod(high, WORD), *divmod(low, WORD)))), 0


def joined(words: Sequence[float], peak: float) -> float:
    """The sum of squares, of the sum of the ranks' words."""
    if not math.isfinite(peak):
        return 0.0
    first, second, third, fourth = map(int, words)
    total = ((first * WORD + second) << DIGIT) + third * WORD + fourth
    return math.ldexp(float(total), 2 * math.frexp(peak)[1] - 2 * DIGIT)
