"""Muon's mathematics of whole matrices (Jordan et al. 2024, kellerjordan.github.io/posts/muon), as torch.optim.Muon."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
EPS = 1e-7


def lr_ratio(shape: Sequence[int], adjust: str) -> float:
    """What multiplies the lr of an update. match_rms_adamw makes it as large as AdamW's, so that one lr serves both
    (Liu et al. 2025, arXiv:2502.16982, section 2.2)."""
    rows, columns = shape
    return 0.2 * math.sqrt(max(rows, columns)) if adjust == "match_rms_adamw" else math.sqrt(max(1.0, rows / columns))


def orthogonalized(matrix: Tensor) -> Tensor:
    """The nearest orthogonal matrix, about: five Newton-Schulz steps in bf16."""
    a, b, c = COEFFICIENTS
    tall = matrix.size(0) > matrix.size(1)
    x = matrix.bfloat16().T if tall else matrix.bfloat16()
    x = x / x.norm().clamp(min=EPS)
    for _ in range(STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
