"""Claim: ZeRO and FSDP2 load what the other saved, at any world size, bit for bit; FSDP2 moves in place."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.distributed as dist

from tests.claims.ranks import on_ranks, world_group
from tests.claims.test_reshard_is_exact import load_whole, state_of, whole_of
from tests.claims.training import fsdp_engine, gpt, plain_curve, train_step, zero_engine
from workers.engine.precision import Precision

WORLD = 3
Curve = list[tuple[float, float]]


def _relay(rank: int, world: int) -> list[Curve]:
    """Two steps by each engine in turn, each at another stage and world than the one before."""
    groups = {size: dist.new_group(list(range(size))) for size in (1, 2, 3)}
    legs = [("zero", 2, 3), ("fsdp", 3, 2), ("zero", 3, 1), ("fsdp", 0, 3), ("fsdp", 2, 1), ("zero", 0, 2)]
    curves: list[Curve] = []
    whole, scalars = None, None
    for number, (name, stage, size) in enumerate(legs):
        mine, curve = {}, []
        if rank < size:
            build = zero_engine if name == "zero" else fsdp_engine
            engine = build(gpt(seed=1 if whole is None else 2), groups[size], stage=stage)
            if whole is not None:
                load_whole(engine, rank, whole, scalars)
                again = state_of(engine, rank)
                for (kind, piece), values in again.items():
                    assert torch.equal(values, whole[kind, piece.tensor][piece.interval.start : piece.interval.stop])
            curve = [train_step(engine, 2 * number + s, rank=rank, world=size) for s in (1, 2)]
            mine, scalars = state_of(engine, rank), engine.scalars()
        whole = whole_of(mine)
        everyone: list[object] = [None] * world
        dist.all_gather_object(everyone, scalars)
        scalars = everyone[0]
        curves.append(curve)
    return curves


def test_a_run_that_changes_engine_stage_and_size_is_one_curve() -> None:
    reference = torch.tensor(plain_curve(gpt(), 12)).view(6, 2, 2)
    for curves in on_ranks(WORLD, _relay):
        for curve, expected in zip(curves, reference, strict=True):
            if curve:
                torch.testing.assert_close(torch.tensor(curve), expected, rtol=1e-5, atol=0)


def _bytes(rank: int, world: int, precision: Precision) -> list[tuple[int, int, int]]:
    """By stage: parameters, bytes with gradients before the step, bytes after it."""
    found = []
    for stage in (0, 2, 3):
        model = gpt()
        params = sum(param.numel() for param in model.parameters())
        engine = fsdp_engine(model, world_group(), stage=stage, precision=precision)
        train_step(engine, 1, rank=rank, world=world, count=2 * world)
        after = sum(sum(tiers.values()) for tiers in engine.footprint().by_kind.values())
        tokens = torch.zeros(2, 9, dtype=torch.long)
        engine.micro_step(tokens, weight=1 / world, last=True)
        before = sum(sum(tiers.values()) for tiers in engine.footprint().by_kind.values())
        engine.step(lr_scale=1.0)
        found.append((params, before, after))
    return found


@pytest.mark.parametrize("precision", [Precision(), Precision(params=torch.bfloat16, reduce=torch.float32)])
def test_the_states_have_the_bytes_of_the_formula(precision: Precision) -> None:
    for held in on_ranks(2, _bytes, precision):
        for stage, (params, before, after) in zip((0, 2, 3), held, strict=True):
            shard = params if stage == 0 else params / 2
            assert before == pytest.approx(16 * shard, rel=0.02), f"stage {stage}"
            assert after == pytest.approx(12 * shard, rel=0.02), f"stage {stage}"


def _moves(rank: int, world: int) -> tuple[Curve, list[int]]:
    """Twenty groups of two and three ranks by turns in the same engine; what is alive of those that are over."""
    engine, curve, former, alive = None, [], [], []
    whole, scalars = None, None
    model = gpt()
    for step in range(1, 21):
        size = 3 if step % 2 else 2
        group = dist.new_group(list(range(size)))
        mine = {}
        if rank < size:
            if engine is None:
                engine = fsdp_engine(model, group, stage=3)
            else:
                engine.rejoin(group)
                load_whole(engine, rank, whole, scalars)
            curve.append(train_step(engine, step, rank=rank, world=size))
            mine, scalars = state_of(engine, rank), engine.scalars()
            former.append(weakref.ref(group))
        whole = whole_of(mine)
        everyone: list[object] = [None] * world
        dist.all_gather_object(everyone, scalars)
        scalars = everyone[0]
        if rank < size and step < 20:
            dist.destroy_process_group(group)
        del group
        gc.collect()
        alive.append(sum(reference() is not None for reference in former))
    return curve, alive


def test_fsdp_moves_to_twenty_groups_and_leaves_nothing() -> None:
    reference = torch.tensor(plain_curve(gpt(), 20))
    curves = on_ranks(WORLD, _moves)
    for curve, alive in curves[:2]:
        torch.testing.assert_close(torch.tensor(curve), reference, rtol=1e-5, atol=0)
        # The group of the step before is still the engine's own.
        assert max(alive) <= 2, alive
