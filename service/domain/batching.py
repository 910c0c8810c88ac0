"""The micro-batches of a step and who takes which.

A step's batch is `batch_size` consecutive positions of an endless, seeded order of samples, cut into fixed groups of
`micro_batch_size`. Neither depends on the workers: they only share the groups out, evenly or not.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """One fixed group of samples: positions `first <= p < first + size` of the endless order."""

    step: int
    index: int
    first: int
    size: int


def micro_batches(*, step: int, batch_size: int, micro_batch_size: int) -> tuple[MicroBatch, ...]:
    """The groups of step `step` (the first step is 1), in order. `micro_batch_size` divides `batch_size`."""
    if step < 1:
        raise ValueError(f"step {step}: the first step is 1")
    if batch_size % micro_batch_size:
        raise ValueError(f"batch_size {batch_size} is not a multiple of micro_batch_size {micro_batch_size}")
    first = (step - 1) * batch_size
    return tuple(
        MicroBatch(step=step, index=index, first=first + index * micro_batch_size, size=micro_batch_size)
        for index in range(batch_size // micro_batch_size)
    )


def share(count: int, *, world_size: int, dealt: bool = False) -> tuple[range, ...]:
    """Which of `count` micro-batches each rank takes: contiguous, sizes at most one apart.

    dealt: one after the other, as cards are, so that what the ranks compute at the same time follows each other.
    """
    if dealt:
        return tuple(range(rank, count, world_size) for rank in range(world_size))
    return tuple(range(rank * count // world_size, (rank + 1) * count // world_size) for rank in range(world_size))


def rounds(count: int, *, world_size: int) -> int:
    """How often every rank calls the engine in a step: as often as the busiest one, at least once."""
    return max(1, -(-count // world_size))
