"""Mirrors: at any moment one step is whole without any one of the workers."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from typing import Any

import pytest
import torch

from tests.fakes.memory_engine import KINDS, MemoryEngine, whole_values
from tests.unit.worker.test_exchange import METAS, NUMELS, flat
from workers.layout.coverage import missing
from workers.layout.layout import Layout, Piece
from workers.worker import mirrors as mirrors_module
from workers.worker.mirrors import Mirrors
from workers.worker.pace import Pace


class Broke(RuntimeError): ...


class FakeGroup:
    """Queues between ranks. `dies_at` names a point where this rank fails: "exchange", "barrier" or never."""

    def __init__(self, rank: int, queues: Any, barrier: threading.Barrier, dies_at: str) -> None:
        self._rank, self._queues, self._barrier, self._dies_at = rank, queues, barrier, dies_at

    def exchange_with(self, sends: Any, receives: Any) -> None:
        if self._dies_at == "exchange":
            self._barrier.abort()
            raise Broke
        for peer, tensor in sends:
            self._queues[self._rank, peer].put(tensor.clone())
        for peer, tensor in receives:
            try:
                tensor.copy_(self._queues[peer, self._rank].get(timeout=0.5))
            except queue.Empty as error:
                raise Broke from error

    def barrier(self) -> None:
        if self._dies_at == "barrier":
            self._barrier.abort()
            raise Broke
        try:
            self._barrier.wait(5)
        except threading.BrokenBarrierError as error:
            raise Broke from error


def take_all(kept: list[Mirrors], step: int, *, dies: dict[int, str] | None = None) -> None:
    """Every rank mirrors its state of `step`, whose values have that seed."""
    world_size = len(kept)
    queues: Any = defaultdict(queue.Queue)
    barrier = threading.Barrier(world_size)

    def take(rank: int) -> None:
        engine = MemoryEngine(METAS, rule=flat, rank=rank, world_size=world_size)
        engine.fill(step)
        group = FakeGroup(rank, queues, barrier, (dies or {}).get(rank, "never"))
        try:
            kept[rank].take(step, engine=engine, rank=rank, nodes=["n"] * world_size, group=group, skipped=0)  # type: ignore[arg-type]
        except Broke:
            barrier.abort()

    threads = [threading.Thread(target=take, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)


def lacking(kept: list[Mirrors], step: int, lost: int) -> tuple[Piece, ...]:
    """What the others cannot give of a step when one is lost; what they can give is checked."""
    held: dict[int, tuple[Piece, ...]] = {}
    for rank, mirrors in enumerate(kept):
        source = mirrors.at(step)
        if rank == lost or source is None:
            continue
        held[rank] = source.pieces()
        for piece in source.pieces():
            for kind in KINDS:
                whole = whole_values(kind, piece.tensor, NUMELS[piece.tensor], step)
                assert torch.equal(source.read(kind, piece), whole[piece.interval.start : piece.interval.stop])
    return missing(NUMELS, Layout(held))


@pytest.fixture(params=[2, 3])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[Mirrors]:
    monkeypatch.setattr(mirrors_module, "CHUNK_NUMEL", 5)
    return [Mirrors(torch.device("cpu")) for _ in range(request.param)]


def test_any_one_worker_may_be_lost(kept: list[Mirrors]) -> None:
    for step in (1, 2, 3):
        take_all(kept, step)
        assert all(lacking(kept, step, lost) == () for lost in range(len(kept)))


@pytest.mark.parametrize("where", ["exchange", "barrier"])
def test_a_death_while_copying_leaves_the_step_before(kept: list[Mirrors], where: str) -> None:
    take_all(kept, 1)
    take_all(kept, 2)
    take_all(kept, 3, dies={1: where})
    assert lacking(kept, 2, lost=1) == ()
    take_all(kept, 4)
    assert all(lacking(kept, 4, lost) == () for lost in range(len(kept)))


def test_what_arrived_counts_for_those_who_did_not_pass_the_barrier(kept: list[Mirrors]) -> None:
    take_all(kept, 1)
    take_all(kept, 2, dies={0: "barrier"})
    assert 2 in kept[0].steps()


def test_steps_that_did_not_happen_are_forgotten(kept: list[Mirrors]) -> None:
    take_all(kept, 5)
    kept[0].forget(above=5)
    assert kept[0].steps() == {5}
    kept[0].forget(above=4)
    assert kept[0].at(5) is None


def test_a_shard_of_another_size_finds_room() -> None:
    three, two = [Mirrors(torch.device("cpu")) for _ in range(3)], [0, 2]
    take_all(three, 1)
    fewer = [three[index] for index in two]
    take_all(fewer, 2)
    take_all(fewer, 3)
    assert all(lacking(fewer, 3, lost) == () for lost in range(2))


def test_the_pace_keeps_copies_under_their_share() -> None:
    pace = Pace()
    assert pace.due(1)
    pace.stepped(0.1)
    pace.copied(1, 0.02)
    assert pace.every == 4
    assert pace.share == pytest.approx(0.05)
    assert [step for step in range(2, 8) if pace.due(step)] == [5, 6, 7]
    pace.begin()
    assert pace.due(2)


def test_copies_that_cost_nothing_are_made_every_step() -> None:
    pace = Pace()
    pace.stepped(1.0)
    pace.copied(1, 0.001)
    assert pace.every == 1


def test_a_pace_of_ones_own_costs_what_it_costs() -> None:
    pace = Pace(every=2)
    pace.stepped(0.1)
    pace.copied(1, 0.1)
    assert [step for step in range(2, 6) if pace.due(step)] == [3, 4, 5]
    assert pace.share == pytest.approx(0.5)
