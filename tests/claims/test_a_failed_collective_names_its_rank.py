"""Claim: where one rank leaves the common order of collectives, the records name that rank and the unit."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import nn

from tests.claims.ranks import on_ranks
from tests.claims.training import gpt, train_step, zero_engine
from workers.controller.divergence import Divergence, first_difference
from workers.engine.states import Collective
from workers.engine.zero.collectives import Pending
from workers.engine.zero.engine import ZeroEngine

TIMEOUT_S = 2.0
CULPRIT = 1

Trouble = Callable[[ZeroEngine, nn.Module], None]


def _skip_a_unit(engine: ZeroEngine, model: nn.Module) -> None:
    original = engine._collectives.gather

    def gather(*args: Any, unit: str = "", **options: Any) -> Pending:
        return Pending() if unit == "blocks.1" else original(*args, unit=unit, **options)

    engine._collectives.gather = gather  # type: ignore[method-assign]


def _hang(engine: ZeroEngine, model: nn.Module) -> None:
    model.get_submodule("blocks.1").register_forward_pre_hook(lambda module, args: time.sleep(2.5 * TIMEOUT_S))


def _broken(rank: int, world: int, trouble: Trouble) -> tuple[bool, tuple[Collective, ...]]:
    group = dist.new_group(list(range(world)), timeout=timedelta(seconds=TIMEOUT_S))
    model = gpt()
    engine = zero_engine(model, group, stage=3)
    train_step(engine, 1, rank=rank, world=world, count=world)
    if rank == CULPRIT:
        trouble(engine, model)
    try:
        train_step(engine, 2, rank=rank, world=world, count=world)
    except RuntimeError:
        return True, engine.traffic().recent
    return False, engine.traffic().recent


def _found(trouble: Trouble) -> Divergence:
    results = on_ranks(3, _broken, trouble)
    assert all(failed for failed, _ in results)
    found = first_difference({rank: recent for rank, (_, recent) in enumerate(results)})
    assert found is not None
    return found


def test_a_rank_that_skips_a_unit_is_named_with_it() -> None:
    found = _found(_skip_a_unit)
    # It is already in the next unit's collective where the others are in that of the skipped one.
    assert (found.rank, found.unit) == (CULPRIT, "blocks.2")
    assert "where others were in all_gather of blocks.1" in found.sentence


def test_a_rank_that_hangs_is_named_with_what_the_others_wait_in() -> None:
    found = _found(_hang)
    assert found.rank == CULPRIT
    assert found.sentence.startswith(f"to all_gather of {found.unit}")
    assert found.sentence.endswith("s after the first")
