"""The norm of gradients: squares summed in fp32 a row at a time, the rows' sums in fp64."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

# A plain fp32 norm of 10M elements is off by 1e-3.
ROW_NUMEL = 4096

# torch.nn.utils.clip_grad_norm_ divides by norm + 1e-6; so do we, once and not per rank.
CLIP_EPS = 1e-6


def clip_divisor(norm: float, clip_norm: float | None) -> float:
    """What a gradient of this norm is divided by."""
    return 1.0 if clip_norm is None else max(1.0, (norm + CLIP_EPS) / clip_norm)


def sum_of_squares(grads: Sequence[Tensor]) -> tuple[float, int]:
    """The sum of squares, and the number of elements that are not finite; one wait for the device."""
    if not grads:
        return 0.0, 0
    squares = torch.stack([_square(grad).to(grads[0].device) for grad in grads]).tolist()
    if all(map(math.isfinite, squares)):
        return sum(squares), 0
    bad = sum(int(grad.isfinite().logical_not().sum()) for grad in grads)
    return (0.0, bad) if bad else (sum(float(grad.double().square().sum()) for grad in grads), 0)


def _square(grad: Tensor) -> Tensor:
    rows = grad.numel() // ROW_NUMEL
    head, tail = grad[: rows * ROW_NUMEL].view(rows, ROW_NUMEL), grad[rows * ROW_NUMEL :]
    norms: Tensor = torch.linalg.vector_norm(head, dim=1, dtype=torch.float32).double()
    rest: Tensor = torch.linalg.vector_norm(tail, dtype=torch.float32).double()
    return norms.square().sum() + rest.square()
