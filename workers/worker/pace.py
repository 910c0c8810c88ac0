"""How often the shards are mirrored."""

from __future__ import annotations


class Pace:
    """`every` steps, or the smallest number of them that keeps the cost of a copy under `SHARE` of their time."""

    SHARE = 0.05
    LIMIT = 1000

    def __init__(self, every: int | None = None) -> None:
        self._fixed = every
        self._cost_s = 0.0
        self._step_s = 0.0
        self._last: int | None = None

    @property
    def every(self) -> int:
        if self._fixed is not None:
            return self._fixed
        if not self._step_s:
            return 1
        return max(1, min(self.LIMIT, -int(-self._cost_s // (self.SHARE * self._step_s))))

    def due(self, step: int) -> bool:
        """A generation's first boundary always: the shards are others than before."""
        return self._last is None or step - self._last >= self.every

    def stepped(self, seconds: float) -> None:
        self._step_s = seconds if not self._step_s else 0.9 * self._step_s + 0.1 * seconds

    def copied(self, step: int, seconds: float) -> None:
        self._cost_s = seconds if not self._cost_s else 0.5 * self._cost_s + 0.5 * seconds
        self._last = step

    @property
    def share(self) -> float:
        """Of the time of the steps between two copies, what one of them costs."""
        return self._cost_s / (self.every * self._step_s) if self._step_s else 0.0

    def begin(self) -> None:
        """A new generation."""
        self._last = None
