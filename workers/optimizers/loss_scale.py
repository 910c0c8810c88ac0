"""The loss scale of fp16: gradients too small for the type are kept by a factor that overflow takes back.

As torch's GradScaler: doubled after `growth_interval` steps without an overflow, halved at each one. `hysteresis`: the
first halving waits for so many overflows (1: for none), and again so after the scale has grown. Micikevicius et al.
2018, arXiv:1710.03740, section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GROWTH, BACKOFF = 2.0, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LossScaleRule:
    """growth_interval None: the scale never grows. `initial` equal to `minimum` as well: a static scale."""

    initial: float = 65536.0
    minimum: float = 1.0
    growth_interval: int | None = 2000
    hysteresis: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.minimum <= self.initial or self.hysteresis < 1 or (self.growth_interval or 1) < 1:
            raise ValueError(f"{self}: initial >= minimum > 0, growth_interval and hysteresis at least 1")


DYNAMIC = LossScaleRule()


class LossScale:
    """The scale of the next backward. Equal on every rank, for it follows the group's verdicts alone."""

    def __init__(self, rule: LossScaleRule | None) -> None:
        """Without a rule the scale is 1 and stays so."""
        self._rule = rule
        self.value = rule.initial if rule else 1.0
        self._good_steps = 0
        self._patience = rule.hysteresis if rule else 1

    def judge(self, *, overflowed: bool) -> bool:
        """Learn of a step. Answers whether an overflow may be the scale's fault: it was above its least."""
        rule = self._rule
        if rule is None:
            return False
        if not overflowed:
            self._good_steps += 1
            if self._good_steps == rule.growth_interval:
                self.value, self._good_steps, self._patience = self.value * GROWTH, 0, rule.hysteresis
            return False
        excused = self.value > rule.minimum
        self._good_steps, self._patience = 0, self._patience - 1
        if self._patience <= 0:
            self.value, self._patience = max(rule.minimum, self.value * BACKOFF), 1
        return excused

    def scalars(self) -> dict[str, Any]:
        """Nothing where nothing is scaled."""
        if self._rule is None:
            return {}
        return {"loss_scale": {"value": self.value, "good_steps": self._good_steps, "patience": self._patience}}

    def load(self, scalars: Mapping[str, Any]) -> None:
        """State of another precision has no scale: the present one stays."""
        stored = scalars.get("loss_scale")
        if self._rule is not None and stored is not None:
            self.value, self._good_steps = float(stored["value"]), int(stored["good_steps"])
            self._patience = int(stored["patience"])
