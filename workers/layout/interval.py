"""Half-open intervals of a tensor's row-major flat index: the one coordinate that every layout speaks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """Elements `start <= i < stop` of a flattened tensor."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop:
            raise ValueError(f"interval [{self.start}, {self.stop}) is not 0 <= start <= stop")

    @property
    def numel(self) -> int:
        return self.stop - self.start

    def intersect(self, other: Interval) -> Interval | None:
        """The common elements, or None where there are none."""
        start, stop = max(self.start, other.start), min(self.stop, other.stop)
        return Interval(start, stop) if start < stop else None

    def shift(self, offset: int) -> Interval:
        return Interval(self.start + offset, self.stop + offset)
