"""A reshard plan executed between workers: every element arrives, whoever stays, joins or leaves."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from typing import Any

import pytest
import torch

from tests.fakes.memory_engine import KINDS, MemoryEngine, whole_values
from workers.engine.states import TensorMeta
from workers.layout.interval import Interval
from workers.layout.layout import Layout, Piece
from workers.worker import exchange as exchange_module
from workers.worker.exchange import Exchange, ExchangeIncomplete, Meeting
from workers.worker.sources import Combined, Extras, Patchwork, split

METAS = {name: TensorMeta(shape=(numel,), dtype="float32") for name, numel in {"a": 7, "b": 13, "c": 1, "d": 5}.items()}
NUMELS = {name: meta.numel for name, meta in METAS.items()}


def flat(numels: dict[str, int], world_size: int) -> Layout[int]:
    """One flat vector of all tensors, cut evenly."""
    total = sum(numels.values())
    size = -(-total // world_size)
    pieces: dict[int, list[Piece]] = {rank: [] for rank in range(world_size)}
    start = 0
    for name, numel in numels.items():
        for rank in range(world_size):
            common = Interval(start, start + numel).intersect(Interval(rank * size, (rank + 1) * size))
            if common:
                pieces[rank].append(Piece(name, common.shift(-start)))
        start += numel
    return Layout({rank: tuple(parts) for rank, parts in pieces.items()})


def everywhere(numels: dict[str, int], world_size: int) -> Layout[int]:
    whole = tuple(Piece(name, Interval(0, numel)) for name, numel in numels.items())
    return Layout(dict.fromkeys(range(world_size), whole))


class FakeStore:
    """Waits for a key as the real one does."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self._changed:
            self._values[key] = value.encode()
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        with self._changed:
            assert self._changed.wait_for(lambda: key in self._values, timeout=10), key
            return self._values[key]


class FakeLinks:
    """One participant's end of queues between all pairs."""

    def __init__(self, number: int, queues: dict[tuple[int, int], Any]) -> None:
        self._number = number
        self._queues = queues

    def run(self, sends: Any, receives: Any) -> None:
        for peer, tensor in sends:
            self._queues[self._number, peer].put(tensor.clone())
        for peer, tensor in receives:
            tensor.copy_(self._queues[peer, self._number].get(timeout=10))


def held(rank: int, world_size: int, rule: Any, seed: int) -> Patchwork:
    engine = MemoryEngine(METAS, rule=rule, rank=rank, world_size=world_size)
    engine.fill(seed)
    values = {(kind, piece): engine.export(kind, piece).clone() for kind in KINDS for piece in engine.layout().of(rank)}
    return Patchwork(values, Extras())


def run_exchange(
    *, former: tuple[str, ...], members: tuple[str, ...], leavers: tuple[str, ...] = (), rule: Any = flat
) -> tuple[dict[str, MemoryEngine], int]:
    """The engines of the new members after the move, and how many elements of one kind moved."""
    store, queues = FakeStore(), defaultdict(queue.Queue)  # type: ignore[var-annotated]
    engines: dict[str, MemoryEngine] = {}
    moved: dict[str, int] = {}

    def take_part(me: str) -> None:
        meeting = Meeting(me=me, members=members, leavers=leavers, holders=former)
        source = held(former.index(me), len(former), rule, seed=3) if me in former else None
        links = FakeLinks(meeting.number(me), queues)
        exchange = Exchange(meeting, store=store, links=links, source=source, device=torch.device("cpu"))  # type: ignore[arg-type]
        engine = None
        if me in members:
            engine = MemoryEngine(METAS, rule=rule, rank=members.index(me), world_size=len(members))
            engines[me] = engine
        exchange.announce(wanted=engine.layout() if engine else None)
        agreed = exchange.agree()
        moved[me] = agreed.moved_numel
        exchange.move(agreed, KINDS, lambda item, values: engine.load(*item, values) if engine else None)

    threads = [threading.Thread(target=take_part, args=(worker,)) for worker in (*members, *leavers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(set(moved.values())) == 1
    return engines, next(iter(moved.values()))


def check(engines: dict[str, MemoryEngine], members: tuple[str, ...]) -> None:
    for rank, worker in enumerate(members):
        for piece in engines[worker].layout().of(rank):
            for kind in KINDS:
                whole = whole_values(kind, piece.tensor, NUMELS[piece.tensor], 3)
                expected = whole[piece.interval.start : piece.interval.stop]
                assert torch.equal(engines[worker].export(kind, piece), expected)


@pytest.mark.parametrize("rule", [flat, everywhere])
@pytest.mark.parametrize("chunk_numel", [3, 1000])
@pytest.mark.parametrize(
    ("former", "members", "leavers"),
    [
        (("a",), ("a", "b", "c"), ()),
        (("a", "b"), ("a", "c", "b"), ()),
        (("a", "b", "c"), ("a", "c"), ("b",)),
        (("a", "b", "c", "d"), ("c",), ("a", "b", "d")),
        (("a", "b"), ("c",), ("a", "b")),
        (("a", "b", "c"), ("b", "d"), ("a", "c")),
    ],
)
def test_every_element_arrives(
    monkeypatch: pytest.MonkeyPatch,
    rule: Any,
    chunk_numel: int,
    former: tuple[str, ...],
    members: tuple[str, ...],
    leavers: tuple[str, ...],
) -> None:
    monkeypatch.setattr(exchange_module, "CHUNK_NUMEL", chunk_numel)
    engines, _ = run_exchange(former=former, members=members, leavers=leavers, rule=rule)
    check(engines, members)


def test_what_a_survivor_holds_does_not_move() -> None:
    _, moved = run_exchange(former=("a", "b", "c"), members=("a", "b", "c"))
    assert moved == 0


def test_pieces_that_nobody_holds_are_named() -> None:
    store = FakeStore()
    meeting = Meeting(me="a", members=("a",), leavers=(), holders=("a",))
    source = held(0, 2, flat, seed=3)
    exchange = Exchange(meeting, store=store, links=FakeLinks(0, {}), source=source, device=torch.device("cpu"))  # type: ignore[arg-type]
    exchange.announce(wanted=everywhere(NUMELS, 1))
    with pytest.raises(ExchangeIncomplete, match=r"b\[6:13\]"):
        exchange.agree()


def test_a_piece_may_span_several_that_touch() -> None:
    parts = (Piece("a", Interval(0, 3)), Piece("a", Interval(3, 7)))
    values = {
        (kind, piece): torch.arange(piece.interval.start, piece.interval.stop) for kind in KINDS for piece in parts
    }
    source = Patchwork(values, Extras())
    assert source.read(KINDS[0], Piece("a", Interval(1, 6))).tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(KeyError):
        source.read(KINDS[0], Piece("a", Interval(1, 8)))
    assert list(split(Piece("a", Interval(1, 6)), parts)) == [Piece("a", Interval(1, 3)), Piece("a", Interval(3, 6))]


def test_two_sources_of_a_step_are_one() -> None:
    def patch(*intervals: tuple[int, int], offset: int) -> Patchwork:
        pieces = [Piece("a", Interval(*interval)) for interval in intervals]
        values = {(KINDS[0], p): torch.arange(p.interval.start, p.interval.stop) + offset for p in pieces}
        return Patchwork(values, Extras())

    both = Combined(patch((2, 4), (6, 7), offset=0), patch((0, 6), offset=100))
    assert both.pieces() == (Piece("a", Interval(0, 7)),)
    assert both.read(KINDS[0], Piece("a", Interval(0, 7))).tolist() == [100, 101, 2, 3, 104, 105, 6]
