"""One generation as the controller sees it: who is in it, what they answered, and what the change cost.

Membership never changes inside a generation. It is formed, runs, and ends: by an agreed stop or by a loss.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from service.domain.arrangement import Arrangement
from workers.layout.layout import Layout, Piece
from workers.layout.recovery import newest_complete_step
from workers.worker.messages import (
    Broken,
    Finished,
    FromDisk,
    FromMembers,
    Join,
    Joined,
    Origin,
    Resumed,
    Stopped,
    StoreAddress,
)

Cause = Literal["start", "resize", "recover"]
Answer = Stopped | Broken | Finished


@dataclass(slots=True, kw_only=True)
class Generation:
    """`members[rank]` is a worker id. Mutable while it is the present one; belongs to the controller's thread.

    `stepped_at`: the controller's time of the last step before it. `arranged_before`: where it holds its state in
    another way than the one before; `why`: where that was chosen and not wished.
    """

    number: int
    members: tuple[str, ...]
    leavers: tuple[str, ...] = ()
    cause: Cause
    arrangement: Arrangement
    before: int = 0
    step_before: int = 0
    stepped_at: float | None = None
    arranged_before: Arrangement | None = None
    why: str = ""
    joined: dict[str, Joined] = field(default_factory=dict)
    resumed: dict[str, Resumed] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    told: bool = False

    @property
    def participants(self) -> tuple[str, ...]:
        return (*self.members, *self.leavers)

    @property
    def stands(self) -> bool:
        return set(self.joined) >= set(self.members)

    @property
    def speaker(self) -> str:
        """Rank 0 reports for the group."""
        return self.members[0]

    def rank(self, worker: str) -> int:
        return self.members.index(worker) if worker in self.members else -1

    def everybody(self, kind: type[Answer]) -> bool:
        return all(isinstance(self.answers.get(member), kind) for member in self.members)

    def join(self, *, nodes: tuple[str, ...], store: StoreAddress, origin: Origin) -> Join:
        """The order that forms it."""
        return Join(
            generation=self.number,
            members=self.members,
            nodes=nodes,
            leavers=self.leavers,
            store=store,
            origin=origin,
            arrangement=self.arrangement,
        )

    def cost(self, *, now: float) -> Cost | None:
        """Once every member has done its first step, or come to the end without one.

        Where no member has seen a step before, the pause is as the controller saw it.
        """
        if not self.stands or any(m not in self.resumed and m not in self.answers for m in self.members):
            return None
        pauses = [resumed.pause_s for resumed in self.resumed.values() if resumed.pause_s is not None]
        if not pauses and self.stepped_at is not None and self.resumed:
            pauses = [now - self.stepped_at]
        joined = self.joined.values()
        return Cost(
            from_step=max(each.step for each in joined),
            source=next(iter(joined)).source,
            pause_s=max(pauses, default=None),
            form_s=max(each.form_s for each in joined),
            move_s=max(each.move_s for each in joined),
            first_step_s=max((each.first_step_s for each in self.resumed.values()), default=None),
            moved_bytes=max(each.moved_bytes for each in joined),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a change of generation took. `pause_s`: from the end of the last step before to that of the first after."""

    from_step: int
    source: Literal["survivors", "checkpoint", "start"]
    pause_s: float | None
    form_s: float
    move_s: float
    first_step_s: float | None
    moved_bytes: int


def stopped_at(answers: Mapping[str, Answer]) -> int:
    """The boundary that a generation agreed on. All members report the same."""
    steps = {answer.step for answer in answers.values()}
    if len(steps) != 1:
        raise RuntimeError(f"members stopped at different steps: {sorted(steps)}; this breaks the protocol of the loop")
    return steps.pop()


def origin_after_loss(answers: Mapping[str, Answer]) -> Origin:
    """From those who are left where they hold all of a step between them, else from disk. The newest such step wins."""
    broken = {worker: answer for worker, answer in answers.items() if isinstance(answer, Broken) and answer.holdings}
    if not broken:
        return FromDisk()
    held: dict[int, dict[str, tuple[Piece, ...]]] = defaultdict(dict)
    for worker, answer in broken.items():
        for holding in answer.holdings:
            held[holding.step][worker] = holding.pieces
    whole = next(iter(broken.values())).whole
    found = newest_complete_step(whole=whole, held={step: Layout(pieces) for step, pieces in held.items()})
    if found is None:
        return FromDisk()
    return FromMembers(step=found.step, holders=tuple(found.held.pieces))
