"""What a worker's training thread owns: model, engine, loader and group. It lives through the generations.

`state_step` says of which step its state is. A state that a failed exchange or a torn step left undefined is not
offered to anybody: `_source()` is None then, or the values that outlived the former group.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import torch

from service.domain.batching import micro_batches
from service.domain.wire import Brief
from workers.data.loader import Loader
from workers.engine.protocol import Engine
from workers.worker import assemble, probes
from workers.worker.checkpoints import Checkpoints
from workers.worker.exchange import EngineSource, Exchange, HeldSource, Item, Meeting, Source, split
from workers.worker.loop import Ending, Loop, Place
from workers.worker.messages import Broken, FromMembers, Join, Joined, Left, Line, Resumed, Saved, SaveFailed
from workers.worker.outbox import Outbox
from workers.worker.process_group import GroupOwner
from workers.worker.recorder import Recorder
from workers.worker.wishes import Wishes


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a join made of the state."""

    step: int
    source: Literal["survivors", "checkpoint", "start"]
    moved_bytes: int = 0


class Member:
    """Every method but `owner.abort` belongs to the training thread."""

    def __init__(
        self,
        *,
        worker_id: str,
        brief: Brief,
        device: torch.device,
        outbox: Outbox,
        wishes: Wishes,
        orphaned: Callable[[], bool],
    ) -> None:
        self._id = worker_id
        self._brief = brief
        self._device = device
        self._outbox = outbox
        self._wishes = wishes
        self._orphaned = orphaned
        self.owner = GroupOwner(device)
        self._checkpoints = Checkpoints(brief)
        self._model: torch.nn.Module | None = None
        self._engine: Engine | None = None
        self._loader: Loader | None = None
        self._outlived: HeldSource | None = None
        self._whole = False
        self._pristine = False
        self._saved_step = -1
        self._saved: Saved | SaveFailed | None = None
        self.place = Place(generation=0, rank=-1, world_size=0)
        self.state_step = 0
        self._skipped = 0
        self._step_ended_at: float | None = None
        self._first_step_from: float | None = None

    def warm(self) -> None:
        """All that a join needs and that needs no group."""
        training = self._brief.spec.training
        self._model = assemble.build_model(self._brief.spec)
        self._loader = assemble.build_loader(self._brief.spec, cache_folder=Path(self._brief.cache_folder))
        first = micro_batches(step=1, batch_size=training.batch_size, micro_batch_size=training.micro_batch_size)[0]
        # The first look at data that are wrong or slow should not be inside a generation.
        self._loader.batch(first)

    def join(self, join: Join) -> None:
        """Form the generation and load its state; reports Joined, or Left where this worker only hands over."""
        began = time.perf_counter()
        self.owner.meet(join.generation, join.store)
        if self._id in join.leavers:
            self._hand_over(join)
            return
        rank = join.members.index(self._id)
        self.place = Place(generation=join.generation, rank=rank, world_size=len(join.members))
        self.owner.form(rank=rank, world_size=len(join.members))
        formed = time.perf_counter()
        self._first_step_from, self._saved_step = formed, -1
        loaded = self._take_over(join, join.origin) if isinstance(join.origin, FromMembers) else self._load_from_disk()
        self.owner.barrier()
        self._outlived, self._whole, self.state_step = None, True, loaded.step
        self._pristine = self._pristine and loaded.source == "start"
        self._outbox.put(
            Joined(
                generation=join.generation,
                step=loaded.step,
                source=loaded.source,
                form_s=formed - began,
                move_s=time.perf_counter() - formed,
                moved_bytes=loaded.moved_bytes,
            )
        )

    def train(self) -> Ending:
        """From the state's step on, to the end or an agreed stop."""
        place = self.place
        engine, loader = self._standing()
        loop = Loop(
            spec=self._brief.spec,
            place=place,
            engine=engine,
            loader=loader,
            wishes=self._wishes,
            recorder=Recorder(
                self._outbox,
                generation=place.generation,
                rank=place.rank,
                memory=lambda: probes.memory(engine, self._device),
            ),
            orphaned=self._orphaned,
            save=self.save,
            advancing=self._advancing,
            advanced=self._advanced,
        )
        return loop.run(self.state_step)

    def save(self, step: int) -> None:
        """Every rank writes its part; rank 0 publishes and reports. A boundary is written once."""
        engine, _ = self._standing()
        request_id = self._wishes.take_save(self.place.generation)
        if self._saved_step != step:
            self._saved_step = step
            self._saved = self._checkpoints.save(
                step, engine=engine, place=self.place, store=self.owner.store, skipped=self._skipped
            )
        if isinstance(self._saved, Saved):
            self._outbox.put(replace(self._saved, request_id=request_id))
        elif self._saved is not None:
            self._outbox.put(self._saved)

    def broken(self, error: BaseException, generation: int) -> Broken:
        """What is left after a collective failed; the group is gone when this returns."""
        self.owner.destroy()
        source = self._source()
        tensors = self._engine.tensors() if self._engine is not None else {}
        return Broken(
            generation=generation,
            step=self.state_step if source is not None else -1,
            error=f"{type(error).__name__}: {error}"[:500],
            holds=source.pieces() if source is not None else (),
            whole={name: meta.numel for name, meta in tensors.items()},
        )

    # ---- state ---------------------------------------------------------------------------------------------------

    def _standing(self) -> tuple[Engine, Loader]:
        if self._engine is None or self._loader is None:
            raise RuntimeError(f"worker {self._id} has no engine: join a generation first")
        return self._engine, self._loader

    def _source(self) -> Source | None:
        """What this worker can give of `state_step`."""
        if self._outlived is not None:
            return self._outlived
        if self._engine is None or not self._whole:
            return None
        return EngineSource(self._engine, self.place.rank)

    def _take_place(self) -> Engine:
        """The engine in the present group. What it held before is kept in `_outlived` until the new state stands."""
        if self._engine is None:
            if self._model is None:
                raise RuntimeError(f"worker {self._id} is not warm")
            self._engine = assemble.build_engine(self._model, self.owner.group, self._brief.spec, self._device)
            self._pristine = True
        else:
            self._pristine = False
            held = self._engine.rejoin(self.owner.group)
            if self._whole:
                self._outlived = HeldSource(held)
        self._whole = False
        return self._engine

    def _take_over(self, join: Join, origin: FromMembers) -> Loaded:
        engine = self._take_place()
        source = self._outlived if self._id in origin.holders else None
        exchange = self._exchange(join, origin, source)
        exchange.announce(wanted=engine.layout())
        mine = engine.layout().of(self.place.rank)

        def load(item: Item, values: torch.Tensor) -> None:
            kind, piece = item
            for part in split(piece, mine):
                start = part.interval.start - piece.interval.start
                engine.load(kind, part, values[start : start + part.numel])

        agreed = exchange.agree()
        exchange.move(agreed, engine.kinds(), load)
        engine.load_scalars(exchange.share_scalars(engine.scalars() if source is not None else None))
        exchange.share_buffers(engine.buffers())
        engine.commit_load()
        moved_bytes = agreed.moved_numel * 4 * len(engine.kinds())
        return Loaded(step=origin.step, source="survivors", moved_bytes=moved_bytes)

    def _hand_over(self, join: Join) -> None:
        engine, _ = self._standing()
        source = self._source()
        if source is None or not isinstance(join.origin, FromMembers):
            raise RuntimeError(f"worker {self._id} has nothing to hand over to generation {join.generation}")
        exchange = self._exchange(join, join.origin, source)
        exchange.announce(wanted=None)
        agreed = exchange.agree()
        exchange.move(agreed, engine.kinds(), load=lambda item, values: None)
        exchange.share_scalars(engine.scalars())
        exchange.share_buffers(engine.buffers())
        self._outbox.put(Left(generation=join.generation))

    def _exchange(self, join: Join, origin: FromMembers, source: Source | None) -> Exchange:
        meeting = Meeting(me=self._id, members=join.members, leavers=join.leavers, holders=origin.holders)
        if join.leavers:
            count = len(meeting.participants)
            links = self.owner.wider_links(number=meeting.number(self._id), count=count)
        else:
            links = self.owner.links()
        return Exchange(meeting, store=self.owner.store, links=links, source=source, device=self._device)

    def _load_from_disk(self) -> Loaded:
        """The newest whole checkpoint; without one, step 0 with a new model, as a new job has it."""
        engine = self._take_place()
        found = self._checkpoints.load_newest(engine, place=self.place, owner=self.owner)
        for line in found.passed_over:
            self._outbox.put(Line(at=datetime.now(UTC), level="warning", text=line, rank=self.place.rank))
        if found.step is not None:
            self._skipped = found.skipped
            return Loaded(step=found.step, source="checkpoint")
        # All rebuild or none: building is collective.
        if self.owner.agree(float(found.touched or not self._pristine)):
            self._engine = self._outlived = self._model = None
            del engine
            self._model = assemble.build_model(self._brief.spec)
            self._take_place()
        self._skipped = 0
        return Loaded(step=0, source="start")

    # ---- steps ---------------------------------------------------------------------------------------------------

    def _advancing(self) -> None:
        """Stage 0 changes nothing before the group agreed, and nothing can fail after; above it a failure may tear."""
        self._whole = self._brief.spec.stage == 0

    def _advanced(self, step: int, skipped: bool) -> int:
        now = time.perf_counter()
        self.state_step, self._whole, self._pristine = step, True, False
        self._skipped += skipped
        if self._first_step_from is not None:
            pause_s = None if self._step_ended_at is None else now - self._step_ended_at
            self._outbox.put(
                Resumed(
                    generation=self.place.generation,
                    step=step,
                    pause_s=pause_s,
                    first_step_s=now - self._first_step_from,
                )
            )
            self._first_step_from = None
        self._step_ended_at = now
        return self._skipped
