"""Values of a step on their way to a chart, under the names of the contract."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from workers.worker.messages import Points
from workers.worker.outbox import Outbox

# Memory changes slowly and costs a look at the process: about once a second, and at the first step.
MEMORY_EVERY_S = 1.0


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
    """Rank 0 speaks for the group; each rank for its own memory."""

    def __init__(
        self, outbox: Outbox, *, generation: int, rank: int, memory: Callable[[], Mapping[str, float]]
    ) -> None:
        self._outbox = outbox
        self._generation = generation
        self._rank = rank
        self._memory = memory
        self._memory_at = float("-inf")

    def step(self, step: int, clock: Clock, values: Mapping[str, float]) -> None:
        """`values`: those of the group that the loop knows; the clock's are added."""
        if self._rank == 0:
            spent = {
                "step_s": clock.step_s,
                "data_s": clock.data_s,
                "compute_s": clock.compute_s,
                "comm_s": clock.comm_s,
                "optimizer_s": clock.optimizer_s,
            }
            self._put(step, {**values, **spent}, rank=None)
        now = time.monotonic()
        if now - self._memory_at >= MEMORY_EVERY_S:
            self._memory_at = now
            self._put(step, dict(self._memory()), rank=self._rank)

    def _put(self, step: int, values: dict[str, float], *, rank: int | None) -> None:
        self._outbox.put(Points(generation=self._generation, step=step, at=datetime.now(UTC), values=values, rank=rank))
