"""After a loss: the newest step of which every element is still somewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic

from workers.layout.coverage import missing
from workers.layout.layout import Layout, Owner, Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery(Generic[Owner]):
    """The step to go on from and who holds it; `passed_over` says of each newer step which pieces nobody has."""

    step: int
    held: Layout[Owner]
    passed_over: tuple[tuple[int, tuple[Piece, ...]], ...]


def newest_complete_step(*, whole: Mapping[str, int], held: Mapping[int, Layout[Owner]]) -> Recovery[Owner] | None:
    """The newest of the steps in `held` (step -> layout over survivors, mirrors and files) that covers `whole`.

    whole: tensor -> numel. A survivor that committed a step holds that step alone: it cannot go back, so steps are
    never mixed. None where no step is whole.
    """
    passed_over: list[tuple[int, tuple[Piece, ...]]] = []
    for step in sorted(held, reverse=True):
        lacking = missing(whole, held[step])
        if not lacking:
            return Recovery(step=step, held=held[step], passed_over=tuple(passed_over))
        passed_over.append((step, lacking))
    return None
