"""Executes a reshard plan: what workers hold of a step becomes what a new generation wants of it.

Every participant reads the same inventory from the store and computes the same plan; then pieces go straight from
worker to worker, packed per pair, at most `CHUNK_NUMEL` elements of a pair at a time. Nothing touches a disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch._C._distributed_c10d import Store

from workers.engine.protocol import Engine
from workers.engine.states import StateKind
from workers.layout.interval import Interval
from workers.layout.layout import Layout, Piece
from workers.layout.reshard import Plan, plan
from workers.worker.sources import Extras, Source

CHUNK_NUMEL = 16 * 2**20

Item = tuple[StateKind, Piece]


class ExchangeIncomplete(RuntimeError):
    """No participant holds some of what the new generation wants."""

    def __init__(self, missing: Layout[str]) -> None:
        lacking = [f"{piece.tensor}[{piece.interval.start}:{piece.interval.stop}]" for _, piece in missing]
        shown = ", ".join(lacking[:5])
        super().__init__(f"nobody holds {len(lacking)} pieces ({shown}, ...): load the newest checkpoint instead")


class Links(Protocol):
    """Point-to-point among the participants, numbered `members` first, `leavers` after."""

    def run(self, sends: Sequence[tuple[int, torch.Tensor]], receives: Sequence[tuple[int, torch.Tensor]]) -> None:
        """Post all at once and wait for all; (peer, tensor) pairs of a peer match in order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Who takes part: worker ids by number, and which of them hold the step."""

    me: str
    members: tuple[str, ...]
    leavers: tuple[str, ...]
    holders: tuple[str, ...]

    @property
    def participants(self) -> tuple[str, ...]:
        return (*self.members, *self.leavers)

    def number(self, worker: str) -> int:
        return self.participants.index(worker)


class Exchange:
    """One exchange of one generation. `source` is None for who holds nothing of the step."""

    def __init__(
        self, meeting: Meeting, *, store: Store, links: Links, source: Source | None, device: torch.device
    ) -> None:
        self._meeting = meeting
        self._store = store
        self._links = links
        self._source = source
        self._device = device

    def announce(self, *, wanted: Layout[int] | None) -> None:
        """Publish what this worker holds; new rank 0 also what every rank wants."""
        me = self._meeting.me
        if self._source is not None:
            self._store.set(f"holds/{me}", _to_json(self._source.pieces()))
        if wanted is not None and me == self._meeting.members[0]:
            by_rank = [_to_list(wanted.of(rank)) for rank in range(len(self._meeting.members))]
            self._store.set("wants", json.dumps(by_rank))

    def agree(self) -> Plan[str]:
        """The same plan on every participant."""
        have = {worker: _from_list(self._read(f"holds/{worker}")) for worker in self._meeting.holders}
        wants = self._read("wants")
        want = {worker: _from_list(wants[rank]) for rank, worker in enumerate(self._meeting.members)}
        agreed = plan(Layout(have), Layout(want))
        if any(agreed.missing.pieces.values()):
            raise ExchangeIncomplete(agreed.missing)
        return agreed

    def move(self, agreed: Plan[str], kinds: Sequence[StateKind], load: Callable[[Item, torch.Tensor], None]) -> None:
        """Send and receive; `load` takes each item that this worker keeps or gets."""
        me = self._meeting.me
        outgoing = {worker: list(_chunks(_items(agreed, kinds, me, worker))) for worker in self._meeting.members}
        incoming = {worker: list(_chunks(_items(agreed, kinds, worker, me))) for worker in self._meeting.holders}
        for turn in range(max(map(len, (*outgoing.values(), *incoming.values())), default=0)):
            sends = {worker: self._pack(chunks[turn]) for worker, chunks in outgoing.items() if turn < len(chunks)}
            gets = {worker: chunks[turn] for worker, chunks in incoming.items() if turn < len(chunks)}
            buffers = {worker: self._empty(items) for worker, items in gets.items()}
            self._links.run(self._numbered(sends), self._numbered(buffers))
            for worker, items in gets.items():
                _unpack(items, buffers[worker], load)
        for piece in agreed.kept.of(me):
            for kind in kinds:
                load((kind, piece), self._held().read(kind, piece))

    def share_extras(self, engine: Engine) -> int:
        """Scalars and buffers of the step into every member's engine; returns the skipped steps.

        The first holder gives; the other holders have their own buffers of that step.
        """
        extras = self._source.extras if self._source is not None else Extras()
        if self._meeting.me == self._meeting.holders[0]:
            self._store.set("scalars", json.dumps([extras.scalars, extras.skipped]))
        self._share_buffers(engine.buffers(), extras.buffers)
        if self._meeting.me not in self._meeting.members:
            return 0
        scalars, skipped = self._read("scalars")
        engine.load_scalars(scalars)
        return int(skipped)

    def _share_buffers(self, into: Mapping[str, torch.Tensor], ours: Mapping[str, torch.Tensor]) -> None:
        giver = self._meeting.holders[0]
        takers = [worker for worker in self._meeting.members if worker not in self._meeting.holders]
        for name, buffer in sorted(into.items()):
            if self._meeting.me in takers:
                got = torch.empty(buffer.numel() * buffer.itemsize, dtype=torch.uint8, device=self._device)
                self._links.run([], [(self._meeting.number(giver), got)])
                buffer.copy_(got.view(buffer.dtype).reshape(buffer.shape))
                continue
            if self._meeting.me == giver:
                flat = ours[name].detach().reshape(-1).contiguous().view(torch.uint8).to(self._device)
                self._links.run([(self._meeting.number(taker), flat) for taker in takers], [])
            if ours[name] is not buffer:
                buffer.copy_(ours[name])

    def _held(self) -> Source:
        if self._source is None:
            raise RuntimeError(f"worker {self._meeting.me} is asked for pieces and holds none")
        return self._source

    def _pack(self, items: Sequence[Item]) -> torch.Tensor:
        return torch.cat([self._held().read(*item).to(self._device, torch.float32) for item in items])

    def _empty(self, items: Sequence[Item]) -> torch.Tensor:
        return torch.empty(sum(piece.numel for _, piece in items), dtype=torch.float32, device=self._device)

    def _numbered(self, tensors: Mapping[str, torch.Tensor]) -> list[tuple[int, torch.Tensor]]:
        return [(self._meeting.number(worker), tensor) for worker, tensor in tensors.items()]

    def _read(self, key: str) -> Any:
        """JSON that a participant wrote; waits for it."""
        return json.loads(self._store.get(key))


def _items(agreed: Plan[str], kinds: Sequence[StateKind], source: str, target: str) -> list[Item]:
    moving = [each.piece for each in agreed.transfers if each.source == source and each.target == target]
    return [(kind, piece) for kind in kinds for piece in moving if piece.numel]


def _chunks(items: Sequence[Item]) -> Iterator[list[Item]]:
    """In order, at most CHUNK_NUMEL elements each; an item larger than that is cut."""
    chunk: list[Item] = []
    room = CHUNK_NUMEL
    for kind, piece in items:
        start, stop = piece.interval.start, piece.interval.stop
        while start < stop:
            taken = min(room, stop - start)
            chunk.append((kind, Piece(piece.tensor, Interval(start, start + taken))))
            start, room = start + taken, room - taken
            if room == 0:
                yield chunk
                chunk, room = [], CHUNK_NUMEL
    if chunk:
        yield chunk


def _unpack(items: Sequence[Item], buffer: torch.Tensor, load: Callable[[Item, torch.Tensor], None]) -> None:
    sizes = [piece.numel for _, piece in items]
    for item, values in zip(items, torch.split(buffer, sizes), strict=True):
        load(item, values)


def _to_list(pieces: Iterable[Piece]) -> list[list[object]]:
    return [[piece.tensor, piece.interval.start, piece.interval.stop] for piece in pieces]


def _to_json(pieces: Iterable[Piece]) -> str:
    return json.dumps(_to_list(pieces))


def _from_list(rows: Iterable[tuple[str, int, int]]) -> tuple[Piece, ...]:
    return tuple(Piece(tensor, Interval(start, stop)) for tensor, start, stop in rows)
