"""Claim: an engine lets go of a group at once, survives the death of a peer, and goes on in another group."""

from __future__ import annotations

import gc
import os
import signal
import time
import weakref
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.claims.ranks import join, on_ranks, world_group
from tests.claims.training import gpt, plain_curve, train_step, zero_engine
from workers.engine.states import StateKind
from workers.engine.zero.collectives import Collectives, GroupGone

DOOMED = 2


def _let_go(rank: int, world: int, folder: str) -> list[bool]:
    freed = []
    for stage in range(4):
        engine = zero_engine(gpt(), world_group(), stage=stage)
        train_step(engine, 1, rank=rank, world=world)
        group = weakref.ref(world_group())
        dist.destroy_process_group()
        # No garbage collection: whoever destroys a group wants its connections closed now.
        freed.append(group() is None)
        with pytest.raises(GroupGone):
            train_step(engine, 2, rank=rank, world=world)
        join(Path(folder), f"again-{stage}", rank=rank, world=world)
        engine.rejoin(world_group())
    return freed


def test_nothing_of_the_engine_keeps_a_destroyed_group_alive(tmp_path: Path) -> None:
    assert on_ranks(2, _let_go, str(tmp_path)) == [[True] * 4] * 2


def _two_queues(rank: int, world: int, folder: str) -> tuple[list[bool], int]:
    """On a device whose collectives run on queues there is a second group, for reductions; none runs here."""
    freed = []
    for number, owner_first in enumerate((True, False)):
        collectives = Collectives(world_group(), torch.device("meta"))
        second = weakref.ref(collectives._reduction_group())
        # Nobody leaves before everybody has come.
        dist.barrier(group=world_group())
        assert second() is not world_group()
        if owner_first:
            dist.destroy_process_group()
            with pytest.raises(GroupGone):
                collectives._reduction_group()
            collectives.close()
            join(Path(folder), f"queues-{number}", rank=rank, world=world)
        else:
            collectives.close()
        freed.append(second() is None)
    shared = torch.ones(1)
    dist.all_reduce(shared, group=world_group())
    return freed, int(shared)


def test_the_queue_of_reductions_goes_with_its_owners_group_or_with_the_engine(tmp_path: Path) -> None:
    assert on_ranks(2, _two_queues, str(tmp_path)) == [([True, True], 2)] * 2


def _lose_a_peer(rank: int, world: int, stage: int, folder: str) -> tuple[float, list[tuple[float, float]]]:
    model = gpt()
    engine = zero_engine(model, world_group(), stage=stage)
    for step in (1, 2):
        train_step(engine, step, rank=rank, world=world)
    if rank == DOOMED:
        # In the middle of a forward: at stage 3 gathers are under way.
        model.blocks[1].register_forward_pre_hook(_die)
    began = time.monotonic()
    try:
        train_step(engine, 3, rank=rank, world=world)
        raise AssertionError("the step went on without its peer")
    except RuntimeError:
        waited_s = time.monotonic() - began
    dist.destroy_process_group()
    _meet_again(Path(folder), rank=rank)
    held = engine.rejoin(world_group())
    assert engine.layout().of(rank)
    if stage > 0:
        return waited_s, []
    for piece in engine.layout().of(rank):
        for kind in engine.kinds():
            engine.load(kind, piece, held.values[kind, piece])
    engine.commit_load()
    return waited_s, [train_step(engine, step, rank=rank, world=2) for step in (3, 4)]


def _meet_again(folder: Path, *, rank: int) -> None:
    """As controllers do: where gloo could not connect one of the two, both form another group."""
    for number in range(3):
        try:
            join(folder, f"survivors-{number}", rank=rank, world=2)
            said = "formed"
        except RuntimeError as error:
            said = str(error)
        store = dist.FileStore(str(folder / f"verdicts-{number}"), 2)
        store.set(f"{rank}", said)
        if {store.get(f"{each}") for each in range(2)} == {b"formed"}:
            return
        if dist.is_initialized():
            dist.destroy_process_group()
    raise AssertionError(f"no group was formed: {said}")


def _die(module: nn.Module, args: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("stage", range(4))
def test_survivors_of_a_killed_peer_hear_at_once_and_go_on_in_the_same_processes(stage: int, tmp_path: Path) -> None:
    *survivors, _ = on_ranks(3, _lose_a_peer, stage, str(tmp_path), doomed={DOOMED})
    reference = torch.tensor(plain_curve(gpt(), 4))[2:]
    for waited_s, curve in survivors:
        assert waited_s < 10
        if stage == 0:
            torch.testing.assert_close(torch.tensor(curve), reference, rtol=1e-5, atol=0)


def _many_engines(rank: int, world: int) -> int:
    """An engine dropped after a step leaves nothing behind that the next one in the same group would receive."""
    for seed in range(6):
        engine = zero_engine(gpt(seed), world_group(), stage=1 + seed % 3)
        train_step(engine, 1, rank=rank, world=world)
        del engine
        gc.collect()
    shared = torch.ones(1)
    dist.all_reduce(shared, group=world_group())
    return int(shared)


def test_engines_may_follow_each_other_in_one_group() -> None:
    assert on_ranks(2, _many_engines) == [2, 2]


def _master_sums(rank: int, world: int) -> list[list[bytes]]:
    """After two steps: the bits of every element that a rank holds, in one order, at each stage."""
    bits = []
    for stage in range(4):
        engine = zero_engine(gpt(), world_group(), stage=stage)
        for step in (1, 2):
            train_step(engine, step, rank=rank, world=world, count=world)
        whole = {}
        for piece in engine.layout().of(rank):
            whole[piece] = engine.export(StateKind.MASTER, piece).clone()
        everyone: list[dict] = [{}] * world
        dist.all_gather_object(everyone, whole)
        merged = {}
        for part in everyone:
            for piece, values in part.items():
                merged.setdefault(piece.tensor, {})[piece.interval.start] = values
        names = sorted(merged)
        bits.append([torch.cat([merged[n][at] for at in sorted(merged[n])]).numpy().tobytes() for n in names])
    return bits


@pytest.mark.parametrize("world", [2, 3])
def test_all_stages_give_the_same_bits_at_one_number_of_ranks(world: int) -> None:
    for bits in on_ranks(world, _master_sums):
        assert bits[1] == bits[0]
        assert bits[2] == bits[0]
        assert bits[3] == bits[0]
