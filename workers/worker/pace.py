"""How often the shards are mirrored."""

from __future__ import annotations


class Pace:
    """The smallest number of steps between two copies that keeps their cost under `SHARE` of those steps."""

    SHARE = 0.05
    LIMIT = 1000

    def __init__(self) -> None:
        self._cost_s = 0.0
        self._step_s = 0.0
        self._last: int | None = None

    @property
    def every(self) -> int:
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

    def begin(self) -> None:
        """A new generation."""
        self._last = None
