"""What a worker's training thread does: join generations, train, save, mirror, hand over, tell what is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist

from service.domain.arrangement import Arrangement
from service.domain.batching import micro_batches
from service.domain.wire import Brief
from workers.data.loader import Loader
from workers.engine.protocol import Engine
from workers.worker import assemble, probes
from workers.worker.checkpoints import Checkpoints
from workers.worker.exchange import Exchange, Item, Meeting
from workers.worker.holdings import Holdings
from workers.worker.loop import Ending, Loop, Place
from workers.worker.messages import Broken, FromMembers, Join, Joined, Left, Points, Resumed
from workers.worker.outbox import Outbox
from workers.worker.pace import Pace
from workers.worker.prediction import TOTAL, predicted
from workers.worker.process_group import GroupOwner
from workers.worker.recorder import Recorder
from workers.worker.saves import Saves
from workers.worker.sources import Source, split
from workers.worker.wishes import Wishes


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a join made of the state."""

    step: int
    source: Literal["survivors", "checkpoint", "start"]
    skipped: int
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
        self.place = Place(generation=0, rank=-1, world_size=0)
        self._nodes: tuple[str, ...] = ()
        self._holdings = Holdings(brief.spec, device, folder=Path(brief.cache_folder) / "offload")
        self.checkpoints = Checkpoints(brief, pinned=device.type == "cuda")
        # A tier below the device moves state through buffers that the next micro-step needs: no overlap then.
        self._saves = Saves(self.checkpoints, outbox=outbox, wishes=wishes, overlap=brief.spec.offload.is_none)
        self._recorder: Recorder | None = None
        self._loader: Loader | None = None
        mirrors = brief.spec.mirrors
        self._pace = Pace(mirrors if isinstance(mirrors, int) else None)
        self._step_ended_at: float | None = None
        self._first_step_from: float | None = None

    @property
    def arrangement(self) -> Arrangement:
        return Arrangement.of(self._holdings.spec)

    @property
    def step(self) -> int:
        """Of the state that is held."""
        return self._holdings.step

    def warm(self) -> None:
        """All that a join needs and that needs no group."""
        training = self._brief.spec.training
        self._holdings.warm()
        self.checkpoints.know(self._holdings.model)
        self._loader = assemble.build_loader(self._brief.spec, cache_folder=Path(self._brief.cache_folder))
        first = micro_batches(step=1, batch_size=training.batch_size, micro_batch_size=training.micro_batch_size)[0]
        # The first look at data that are wrong or slow should not be inside a generation.
        self._loader.batch(first)

    def join(self, join: Join) -> None:
        """Form the generation and load its state; reports Joined, or Left where this worker only hands over."""
        began = time.perf_counter()
        self.owner.meet(join.generation, join.store)
        rank = join.members.index(self._id) if self._id in join.members else -1
        place = Place(generation=join.generation, rank=rank, world_size=len(join.members))
        self._saves.enter(place, join.members, from_disk=not isinstance(join.origin, FromMembers))
        if self._id in join.leavers:
            self._hand_over(join)
            return
        self.place = place
        self._nodes = join.nodes
        if self._holdings.arrange(join.arrangement):
            self.checkpoints.know(self._holdings.model)
            self._saves.overlap = join.arrangement.offload.is_none
        self.owner.form(rank=rank, world_size=len(join.members))
        formed = time.perf_counter()
        self._first_step_from = formed
        loaded = self._take_over(join, join.origin) if isinstance(join.origin, FromMembers) else self._load_from_disk()
        self.owner.barrier()
        self._holdings.stand(loaded.step, skipped=loaded.skipped)
        self._pace.begin()
        spec = self._holdings.spec
        if spec.checkpoint.next_after(loaded.step) < spec.training.steps and not spec.offload.on_disk:
            self.checkpoints.prepare(self._holdings.engine, place)
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
        engine, place = self._holdings.engine, self.place
        if self._loader is None:
            raise RuntimeError(f"worker {self._id} is not warm")
        meter = probes.ActivationMeter(self._holdings.model)
        theory = predicted(self._holdings.spec, engine, self._holdings.model, self._device, world_size=place.world_size)

        def memory() -> dict[str, float]:
            said = dict(theory)
            # By kind it is said once: it does not change inside a generation.
            for kind in theory.keys() - {TOTAL}:
                del theory[kind]
            return {**probes.memory(engine, self._device, activations_bytes=meter.peak_bytes), **said}

        self._recorder = Recorder(
            self._outbox,
            generation=place.generation,
            rank=place.rank,
            memory=memory,
            former=self._recorder,
            resumed_at=self._holdings.step,
        )
        loop = Loop(
            spec=self._holdings.spec,
            place=place,
            engine=engine,
            loader=self._loader,
            wishes=self._wishes,
            recorder=self._recorder,
            measure=meter.measure,
            host=self,
        )
        return loop.run(self._holdings.step)

    def broken(self, error: BaseException, generation: int) -> Broken:
        """What is left after a collective failed; the group is gone when this returns."""
        self.owner.destroy()
        return Broken(
            generation=generation,
            step=self._holdings.step,
            error=f"{type(error).__name__}: {error}"[:500],
            holdings=self._holdings.list(),
            whole=self._holdings.whole(),
            recent=self._holdings.recent(),
        )

    # ---- the loop's host -----------------------------------------------------------------------------------------

    def orphaned(self) -> bool:
        return self._orphaned()

    def advanced(self, step: int, *, skipped: bool, busy_s: float) -> int:
        now = time.perf_counter()
        self._holdings.advanced(step, skipped=skipped)
        self._pace.stepped(busy_s)
        if self._first_step_from is not None:
            pause_s = None if self._step_ended_at is None else now - self._step_ended_at
            first_step_s, generation = now - self._first_step_from, self.place.generation
            self._outbox.put(Resumed(generation=generation, step=step, pause_s=pause_s, first_step_s=first_step_s))
            self._first_step_from = None
        self._step_ended_at = now
        return self._holdings.skipped

    def before_update(self) -> None:
        self._saves.before_update()

    def saving(self) -> bool:
        return self._saves.in_flight

    def save(self, step: int, *, behind: bool = False) -> None:
        """Every rank writes its part; rank 0 publishes and reports. What rests on a disk would not fit into memory as
        a snapshot does: it is written at once."""
        engine, skipped = self._holdings.engine, self._holdings.skipped
        if behind and not self._holdings.spec.offload.on_disk:
            self._saves.behind(step, engine, skipped=skipped)
        else:
            self._saves.at_once(step, engine, skipped=skipped, store=self.owner.store)

    def mirror_due(self, step: int) -> bool:
        """Nobody alone has a buddy."""
        return self.place.world_size > 1 and self._holdings.spec.mirrored and self._pace.due(step)

    def mirror(self, step: int) -> None:
        seconds = self._holdings.mirrors.take(
            step,
            engine=self._holdings.engine,
            rank=self.place.rank,
            nodes=self._nodes,
            group=self.owner,
            skipped=self._holdings.skipped,
        )
        self._pace.copied(step, seconds)
        if self.place.rank == 0:
            values = {
                "mirror_s": seconds,
                "mirror_share": self._pace.share,
                "mirror_every_steps": float(self._pace.every),
            }
            at = datetime.now(UTC)
            self._outbox.put(Points(generation=self.place.generation, step=step, at=at, values=values))

    # ---- state ---------------------------------------------------------------------------------------------------

    def _take_over(self, join: Join, origin: FromMembers) -> Loaded:
        engine = self._placed(self._holdings.take_place)
        source = self._holdings.at(origin.step) if self._id in origin.holders else None
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
        skipped = exchange.share_extras(engine)
        engine.commit_load()
        moved_bytes = agreed.moved_numel * 4 * len(engine.kinds())
        return Loaded(step=origin.step, source="survivors", skipped=skipped, moved_bytes=moved_bytes)

    def _placed(self, take: Callable[[dist.ProcessGroup], Engine]) -> Engine:
        """An abort must reach the groups that an engine makes of its own, too."""
        with self.owner.including_new_groups() if self._holdings.spec.shard_size else nullcontext():
            return take(self.owner.group)

    def _hand_over(self, join: Join) -> None:
        engine, origin = self._holdings.engine, join.origin
        source = self._holdings.at(origin.step) if isinstance(origin, FromMembers) else None
        if source is None or not isinstance(origin, FromMembers):
            raise RuntimeError(f"worker {self._id} has nothing to hand over to generation {join.generation}")
        exchange = self._exchange(join, origin, source)
        exchange.announce(wanted=None)
        exchange.move(exchange.agree(), engine.kinds(), load=lambda item, values: None)
        exchange.share_extras(engine)
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
        engine = self._placed(self._holdings.take_place)
        found = self.checkpoints.load_newest(engine, place=self.place, owner=self.owner, tell=self._outbox.put)
        if found.step is not None:
            return Loaded(step=found.step, source="checkpoint", skipped=found.skipped)
        # All of them or none: a rank that is new could not tell that the others' state was written to.
        if self.owner.agree(float(found.touched or not self._holdings.pristine)):
            del engine
            engine = self._placed(self._holdings.renew)
        self._holdings.begin()
        started = self.checkpoints.load_start(engine, place=self.place, store=self.owner.store)
        if started is not None and self.place.rank == 0:
            self._outbox.put(started)
        return Loaded(step=0, source="start", skipped=0)
