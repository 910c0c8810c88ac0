"""Measured memory against the plan's, kind by kind, once in each generation: after its first steps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from service.domain.event import Event
from service.domain.job import Job

LARGEST = 0.1
# Below it a kind is a rounding of the allocator's.
SMALLEST_BYTES = 2**20
PREFIX = "predicted_"


def compared(kinds: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """kind -> (measured, predicted) bytes of one rank, from `Progress.memory`."""
    both = {kind: kind.removeprefix(PREFIX) for kind in kinds if kind.startswith(PREFIX)}
    return {kind: (kinds[kind], kinds[said]) for said, kind in both.items() if kind in kinds}


def off_plan(before: Job, after: Job, *, now: datetime) -> tuple[Event, ...]:
    """An event where the first rank's figures of this generation came in and one is over 10 % off; else none."""
    same = before.progress.generation == after.progress.generation
    known = compared(before.progress.memory.get("0", {})) if same else {}
    found = compared(after.progress.memory.get("0", {}))
    off = {kind: pair for kind, pair in found.items() if _is_off(*pair)}
    if known or not off:
        return ()
    told = [f"{kind} {m / 2**20:.1f} MiB instead of {p / 2**20:.1f}" for kind, (m, p) in off.items()]
    return (
        Event(
            job_id=after.id,
            kind="memory_off_plan",
            at=now,
            message=f"Rank 0 holds other than planned: {', '.join(told)}",
            attempt=after.attempt,
            generation=after.progress.generation,
            step=after.progress.step,
            payload={kind: {"measured_bytes": m, "predicted_bytes": p} for kind, (m, p) in off.items()},
        ),
    )


def _is_off(measured: int, predicted: int) -> bool:
    return abs(measured - predicted) > max(LARGEST * predicted, SMALLEST_BYTES)
