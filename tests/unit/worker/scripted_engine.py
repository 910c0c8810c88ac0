"""An engine that computes nothing and remembers what it was asked; ranks agree through a shared script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from workers.engine.protocol import StepOutcome
from workers.engine.states import Traffic


@dataclass
class ScriptedEngine:
    """`others[step]` is what the other ranks add to the tally."""

    others: dict[int, Sequence[float]] = field(default_factory=dict)
    calls: list[tuple[Any, float, bool, int]] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    steps: int = 0
    skips: frozenset[int] = frozenset({2})
    excused: frozenset[int] = frozenset()

    def micro_step(self, batch: Any, *, weight: float, last: bool) -> torch.Tensor:
        self.calls.append((batch, weight, last, torch.initial_seed()))
        return torch.tensor(2.0)

    def traffic(self) -> Traffic:
        return Traffic(waited_s=0.001 * len(self.calls))

    def step(self, *, lr_scale: float, tally: Sequence[float] = ()) -> StepOutcome:
        self.steps += 1
        self.scales.append(lr_scale)
        added = self.others.get(self.steps, (0.0,) * len(tally))
        total = tuple(mine + other for mine, other in zip(tally, added, strict=True))
        return StepOutcome(
            grad_norm=1.0, skipped=self.steps in self.skips, tally=total, excused=self.steps in self.excused
        )


class ScriptedLoader:
    """A batch is its micro-batch."""

    def __init__(self) -> None:
        self.ahead: list[Any] = []

    def batch(self, micro_batch: Any) -> Any:
        return micro_batch

    def read_ahead(self, micro_batches: Any) -> None:
        self.ahead.append(tuple(micro_batches))
