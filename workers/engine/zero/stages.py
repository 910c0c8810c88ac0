"""Who holds what and what moves when: ZeRO's stages as one table (Rajbhandari et al. 2020, sections 5 and 7)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

from workers.engine.states import StateKind


class Gather(Enum):
    """When parameters are made whole."""

    NEVER = auto()
    AFTER_STEP = auto()
    AROUND_USE = auto()


class Reduce(Enum):
    """How often gradients cross the group."""

    AT_LAST = auto()
    EACH = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One row. Sharded kinds rest as 1/N per rank, the others whole on every rank."""

    number: int
    sharded: frozenset[StateKind]
    gather: Gather
    reduce: Reduce

    def shards(self, kind: StateKind) -> bool:
        return kind in self.sharded

    @property
    def shares_gradients(self) -> bool:
        """Reduction is an all-reduce: every rank needs the whole gradient because it updates the whole master."""
        return not self.shards(StateKind.MASTER)


_OPTIMIZER = frozenset(StateKind) - {StateKind.PARAM, StateKind.GRAD}

STAGES = (
    Stage(number=0, sharded=frozenset(), gather=Gather.NEVER, reduce=Reduce.AT_LAST),
    Stage(number=1, sharded=_OPTIMIZER, gather=Gather.AFTER_STEP, reduce=Reduce.AT_LAST),
    Stage(number=2, sharded=_OPTIMIZER | {StateKind.GRAD}, gather=Gather.AFTER_STEP, reduce=Reduce.EACH),
    Stage(
        number=3,
        sharded=_OPTIMIZER | {StateKind.GRAD, StateKind.PARAM},
        gather=Gather.AROUND_USE,
        reduce=Reduce.EACH,
    ),
)


def stage_of(number: int, *, ordered: bool = False) -> Stage:
    """ordered: every micro-batch's gradient crosses the group by itself, so that the sum can be one of micro-batches in
    their order, not one of ranks' sums."""
    if number not in range(len(STAGES)):
        raise ValueError(f"stage {number} does not exist; choose 0, 1, 2 or 3")
    return replace(STAGES[number], reduce=Reduce.EACH) if ordered else STAGES[number]
