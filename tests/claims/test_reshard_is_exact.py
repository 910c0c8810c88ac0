"""Claim: training state moves to any number of workers and any stage bit for bit, and the curve goes on as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.claims.ranks import on_ranks
from tests.claims.training import gpt, plain_curve, train_step, zero_engine
from workers.engine.placement import Placement
from workers.engine.protocol import Engine, Held
from workers.engine.states import StateKind
from workers.layout.layout import Piece

CPU = torch.device("cpu")
WORLD = 4
State = dict[tuple[StateKind, Piece], Tensor]
Curve = list[tuple[float, float]]


def state_of(engine: Engine, rank: int) -> State:
    return {
        (kind, piece): engine.export(kind, piece).clone()
        for kind in engine.kinds()
        for piece in engine.layout().of(rank)
    }


def whole_of(mine: State) -> dict[tuple[StateKind, str], Tensor]:
    """All ranks' pieces put together, on every rank of the default group; what nobody holds is NaN."""
    everyone: list[State] = [{}] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    whole: dict[tuple[StateKind, str], Tensor] = {}
    for name, param in gpt().named_parameters():
        for kind in (StateKind.MASTER, StateKind.EXP_AVG, StateKind.EXP_AVG_SQ):
            whole[kind, name] = torch.full((param.numel(),), torch.nan)
    for state in everyone:
        for (kind, piece), values in state.items():
            whole[kind, piece.tensor][piece.interval.start : piece.interval.stop] = values
    assert not any(values.isnan().any() for values in whole.values())
    return whole


def load_whole(engine: Engine, rank: int, whole: dict[tuple[StateKind, str], Tensor], steps: dict[str, object]) -> None:
    for piece in engine.layout().of(rank):
        for kind in engine.kinds():
            engine.load(kind, piece, whole[kind, piece.tensor][piece.interval.start : piece.interval.stop])
    engine.load_scalars(steps)
    engine.commit_load()


def _kept(held: Held, mine: State) -> bool:
    return held.values.keys() == mine.keys() and all(torch.equal(held.values[key], mine[key]) for key in mine)


def _journey(rank: int, world: int, stage: int, place: dict[str, Any], folder: str) -> tuple[list[Curve], list[bool]]:
    """Steps 1-3 on four ranks, 4-6 on three of them in place, 7-9 on another two at another stage in a new engine."""
    groups = [dist.new_group([0, 1, 2, 3]), dist.new_group([0, 1, 2]), dist.new_group([1, 3])]
    placement = Placement.of(CPU, folder=Path(folder), **place)
    engine = zero_engine(gpt(), groups[0], stage=stage, placement=placement)
    curves = [[train_step(engine, step, rank=rank, world=4) for step in (1, 2, 3)], [], []]
    mine, steps, exact = state_of(engine, rank), engine.scalars(), []
    whole = whole_of(mine)
    if rank < 3:
        exact.append(_kept(engine.rejoin(groups[1]), mine))
        load_whole(engine, rank, whole, steps)
        mine = state_of(engine, rank)
    else:
        mine = {}
    again = whole_of(mine)
    exact.append(all(torch.equal(whole[key], again[key]) for key in whole))
    if rank < 3:
        curves[1] = [train_step(engine, step, rank=rank, world=3) for step in (4, 5, 6)]
        mine, steps = state_of(engine, rank), engine.scalars()
    whole = whole_of(mine)
    if rank in (1, 3):
        seat = (1, 3).index(rank)
        last = zero_engine(gpt(seed=2), groups[2], stage=3 - stage, placement=placement.renewed())
        load_whole(last, seat, whole, {"steps": dict.fromkeys(steps["steps"], 6)})
        curves[2] = [train_step(last, step, rank=seat, world=2) for step in (7, 8, 9)]
    return curves, exact


NOWHERE: dict[str, Any] = {}
DISK = {"optimizer": "nvme", "params": "nvme"}
SPLIT = {"optimizer": "cpu", "params": "nvme", "ratio": 0.5}


@pytest.mark.parametrize(
    ("stage", "place"), [(0, NOWHERE), (1, NOWHERE), (2, NOWHERE), (3, NOWHERE), (3, DISK), (1, DISK), (3, SPLIT)]
)
def test_state_survives_resizes_bit_for_bit_and_the_curve_is_one(
    stage: int, place: dict[str, Any], tmp_path: Path
) -> None:
    reference = torch.tensor(plain_curve(gpt(), 9)).view(3, 3, 2)
    for curves, exact in on_ranks(WORLD, _journey, stage, place, str(tmp_path)):
        assert all(exact)
        for part, curve in enumerate(curves):
            if curve:
                torch.testing.assert_close(torch.tensor(curve), reference[part], rtol=1e-5, atol=0)
