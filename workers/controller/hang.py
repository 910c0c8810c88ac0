"""Who hangs, judged by where everybody is. Pure.

A worker that waits for the group is a victim; one that computes while others wait is what they wait for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.worker.whereabouts import Where

# Where nobody waits for anybody, a step is slow rather than stuck, and a checkpoint on a slow disk takes its time.
SLOW_TIMES = 3.0
SAVE_TIMES = 30.0

Wheres = Mapping[str, Where | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """`culprits` are to end; without any, all wait for each other and another generation cures it."""

    culprits: tuple[str, ...]
    report: str
    where: tuple[dict[str, Any], ...]


def judge(members: Sequence[str], wheres: Wheres, *, waited_s: float, limit_s: float) -> Hang | None:
    """`wheres`: None for a worker that does not answer. None: wait longer."""
    silent = tuple(worker for worker in members if wheres.get(worker) is None)
    doing = {worker: where.doing for worker in members if (where := wheres.get(worker)) is not None}
    computing = tuple(worker for worker, what in doing.items() if what == "computing")
    if not silent and "saving" in doing.values() and waited_s < limit_s * SAVE_TIMES:
        return None
    if not silent and "waiting" not in doing.values() and waited_s < limit_s * SLOW_TIMES:
        return None
    lines = [_line(rank, wheres.get(worker)) for rank, worker in enumerate(members)]
    return Hang(
        culprits=silent or computing,
        report=f"no step for {waited_s:.0f} s (limit {limit_s:.0f} s): {'; '.join(lines)}",
        where=tuple(_facts(rank, worker, wheres.get(worker)) for rank, worker in enumerate(members)),
    )


def _line(rank: int, where: Where | None) -> str:
    if where is None:
        return f"rank {rank} does not answer"
    said = "waits for the group" if where.doing == "waiting" else f"is {where.doing}"
    return f"rank {rank} {said} after step {where.step} in {where.place}"


def _facts(rank: int, worker: str, where: Where | None) -> dict[str, Any]:
    if where is None:
        return {"rank": rank, "worker": worker, "doing": "silent"}
    return {"rank": rank, "worker": worker, "step": where.step, "doing": where.doing, "place": where.place}
