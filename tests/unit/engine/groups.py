"""Stand-ins for a process group: an engine that is built asks it for rank and size alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from workers.engine.precision import Precision
from workers.engine.units import UnitRule
from workers.engine.zero.engine import ZeroEngine
from workers.optimizers.config import OptimizerConfig


@dataclass(frozen=True, eq=False)
class Seat:
    """A rank of a world whose other ranks do not exist."""

    number: int = 0
    count: int = 1

    def rank(self) -> int:
        return self.number

    def size(self) -> int:
        return self.count


def engine_at(model: nn.Module, seat: Any, *, stage: int = 2, **options: Any) -> ZeroEngine:
    settings: dict[str, Any] = {
        "precision": Precision(),
        "optimizer": OptimizerConfig(lr=1e-2),
        "clip_norm": None,
        "units": UnitRule(),
        "device": torch.device("cpu"),
    }
    return ZeroEngine(model, seat, stage=stage, **(settings | options))
