"""Values of a step on their way to a chart, under the names of the contract."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from workers.worker.messages import Points
from workers.worker.outbox import Outbox

# Memory changes slowly and costs a look at the process: about once a second, and at the first step.
MEMORY_EVERY_S = 1.0
# Reports are fetched many times a second; these are the steps that one killed process can take along.
REMEMBERED_STEPS = 256


@dataclass(slots=True, kw_only=True)
class Clock:
    """Where the time of one step went, in seconds."""

    data_s: float = 0.0
    compute_s: float = 0.0
    comm_s: float = 0.0
    optimizer_s: float = 0.0
    step_s: float = 0.0

    @property
    def busy_s(self) -> float:
        """Without what happens between steps: saves, mirrors, a change of generation."""
        return self.data_s + self.compute_s + self.comm_s + self.optimizer_s


class Recorder:
    """Rank 0 speaks for the group; each rank for its own memory.

    What rank 0 has said may die with it before anybody heard: each rank remembers the group's last values, and
    `former` hands them to the recorder of the next generation, whose rank 0 says them again.
    """

    def __init__(
        self,
        outbox: Outbox,
        *,
        generation: int,
        rank: int,
        memory: Callable[[], Mapping[str, float]],
        former: Recorder | None = None,
        resumed_at: int = 0,
    ) -> None:
        self._outbox = outbox
        self._generation = generation
        self._rank = rank
        self._memory = memory
        self._memory_at = float("-inf")
        self._last: deque[Points] = deque(maxlen=REMEMBERED_STEPS)
        if former is not None:
            self._last.extend(points for points in former._last if points.step <= resumed_at)
            if rank == 0 and former._rank != 0:
                for points in self._last:
                    outbox.put(points)

    def step(self, step: int, clock: Clock, values: Mapping[str, float]) -> None:
        """`values`: those of the group that the loop knows; the clock's are added."""
        spent = {
            "step_s": clock.step_s,
            "data_s": clock.data_s,
            "compute_s": clock.compute_s,
            "comm_s": clock.comm_s,
            "optimizer_s": clock.optimizer_s,
        }
        self._say(step, {**values, **spent})
        now = time.monotonic()
        if now - self._memory_at >= MEMORY_EVERY_S:
            self._memory_at = now
            self._outbox.put(self._points(step, dict(self._memory()), rank=self._rank))

    def _say(self, step: int, values: dict[str, float]) -> None:
        points = self._points(step, values, rank=None)
        self._last.append(points)
        if self._rank == 0:
            self._outbox.put(points)

    def _points(self, step: int, values: dict[str, float], *, rank: int | None) -> Points:
        return Points(generation=self._generation, step=step, at=datetime.now(UTC), values=values, rank=rank)
