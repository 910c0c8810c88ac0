"""What a spec's `python:` fields point at: a function that builds a module, and one that builds a dataset.

The module's `forward(batch)` returns the loss, a mean over the samples of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

Pair = tuple[torch.Tensor, torch.Tensor]


class Regression(nn.Module):
    """A small network that learns y = x^2. Shapes: B samples, one feature."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(1, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1)
        )

    def forward(self, batch: Pair) -> torch.Tensor:
        x_B1, y_B1 = batch
        return nn.functional.mse_loss(self.layers(x_B1), y_B1)


class Squares(Sequence[Pair]):
    """A map-style dataset: `len` and an index are all that is asked of one."""

    def __init__(self, count: int) -> None:
        self.x_N1 = torch.linspace(-1.0, 1.0, count).unsqueeze(1)

    def __len__(self) -> int:
        return len(self.x_N1)

    def __getitem__(self, index: int) -> Pair:  # type: ignore[override]
        return self.x_N1[index], self.x_N1[index] ** 2


def build(width: int = 64) -> nn.Module:
    return Regression(width)


def squares(count: int = 4096) -> Squares:
    return Squares(count)
