"""A generation's checkpoints: every rank writes its part, rank 0 publishes; all agree on the one to resume from."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._C._distributed_c10d import Store

from service.domain.spec import CheckpointSpec
from service.domain.wire import Brief
from workers.checkpoint import catalogue, claims, saving
from workers.checkpoint.background import BackgroundSaver
from workers.checkpoint.courier import StoreCourier
from workers.checkpoint.errors import (
    CheckpointDamaged,
    CheckpointDropped,
    CheckpointError,
    CheckpointIncomplete,
    CheckpointSuperseded,
)
from workers.checkpoint.parts import Part, parts_of
from workers.checkpoint.places import step_folder
from workers.checkpoint.reader import read_into
from workers.checkpoint.retention import Retention
from workers.checkpoint.saving import NotPublished, Published, Ticket
from workers.checkpoint.snapshot import Snapshot, SnapshotMemory
from workers.checkpoint.store import Store as CheckpointStore
from workers.checkpoint.store import open_store
from workers.checkpoint.watch import Progress, Watch
from workers.engine.protocol import Engine
from workers.user_code import SpecError
from workers.worker.loop import Place
from workers.worker.messages import PassedOver, Saved, SaveFailed, Started
from workers.worker.process_group import GroupOwner

# Of a save behind training: a rank that ended meanwhile sends no report, and the next save must not wait for it.
REPORT_PATIENCE_S = 120.0
# What a save in flight gets before a state is loaded from disk; then it is dropped, whole.
SETTLE_S = 5.0

log = logging.getLogger(__name__)

Tell = Callable[[Saved | SaveFailed], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """`step` None: there is no whole checkpoint. `touched`: whether the engine's state was written to."""

    step: int | None
    skipped: int = 0
    touched: bool = False


class Checkpoints:
    """Of one job, seen by one rank."""

    def __init__(self, brief: Brief, *, pinned: bool = False) -> None:
        """`pinned`: snapshots are copied from a GPU."""
        self._brief = brief
        self._store = open_store(brief.checkpoint_uri)
        self._attempt = brief.attempt_number
        self._claimed = False
        self._memory = SnapshotMemory(pinned=pinned)
        self._saver = BackgroundSaver()
        self._snapshot: Snapshot | None = None
        self._ties: Mapping[str, str] = {}

    def adopt(self, attempt: int) -> None:
        """A newer attempt drives this worker now, and no older one may publish."""
        claims.claim(self._store, job=self._brief.job_id, attempt=attempt)
        self._attempt = attempt

    # ---- saving --------------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """A save is in flight on this rank: part of the group's vote on when the next may start."""
        return self._saver.is_busy

    @property
    def progress(self) -> Progress | None:
        return self._saver.progress

    def know(self, model: torch.nn.Module) -> None:
        """Learn which names stand for one and the same parameter: an export needs them all."""
        known: dict[int, str] = {}
        ties: dict[str, str] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            first = known.setdefault(id(parameter), name)
            if first != name:
                ties[name] = first
        self._ties = ties

    def save(self, step: int, *, engine: Engine, place: Place, store: Store, skipped: int) -> Saved | SaveFailed | None:
        """At once: called by every rank at one boundary. Rank 0 answers, the others do not wait for it.

        Where one is in flight, its end comes first. Raises what the group's store raises: a peer is gone.
        """
        self.settle(REPORT_PATIENCE_S)
        courier = _GroupCourier(store, step=step, place=place)
        ticket = self._ticket(step, engine, place, skipped)
        outcome = saving.save(self._store, ticket, parts_of(engine, rank=place.rank), courier, Watch(step))
        return None if outcome is None else self._message(outcome, place)

    def prepare(self, engine: Engine, place: Place) -> None:
        """Touch the snapshot's memory in the saver's thread, so that the first save pauses no longer than the next."""
        parts = parts_of(engine, rank=place.rank)
        if not self.is_busy:
            self._saver.start(0, lambda watch: self._touch(parts))

    def save_behind(
        self, step: int, *, engine: Engine, place: Place, skipped: int, tell: Tell, overlap: bool = False
    ) -> None:
        """Copy this rank's part; a thread does the rest, through resizes too, and rank 0's tells the end.

        Called by every rank at one boundary where the group agreed that none `is_busy`. With `overlap` the thread makes
        the copy as well, while training computes gradients: then `before_update` must be called before each update, and
        nothing else may use the engine's tiers meanwhile (offloaded state is copied without it). A machine without room
        for the copy writes at once instead: a longer pause and the same checkpoint.
        """
        parts = parts_of(engine, rank=place.rank)
        ticket = self._ticket(step, engine, place, skipped)
        try:
            snapshot = self._memory.begin(parts)
        except MemoryError as error:
            log.warning("saving step %d at once: %s", step, error)
            self._finish_behind(ticket, parts, place, Watch(step), tell)
            return
        take = snapshot.take if overlap else partial(_given, snapshot.take())
        self._snapshot = snapshot
        self._saver.start(step, lambda watch: self._finish_behind(ticket, take(), place, watch, tell))

    def before_update(self) -> None:
        """Wait until the snapshot in the making is taken: before each update, and before the engine changes groups."""
        if self._snapshot is not None:
            self._snapshot.wait()
            self._snapshot = None

    def give_up(self) -> None:
        """Where a rank of the save in flight is leaving or lost: it will not be whole. Returns at once."""
        self._saver.give_up()

    def settle(self, timeout_s: float) -> bool:
        """Wait for the save in flight; after the time-out drop it, whole. Before this worker leaves, and before a save
        at once. Returns whether it came to its end."""
        return self._saver.settle(timeout_s)

    def _touch(self, parts: Sequence[Part]) -> None:
        try:
            self._memory.reserve(parts)
        except MemoryError as error:
            log.warning("saves will be made at once: %s", error)

    def _finish_behind(self, ticket: Ticket, parts: Sequence[Part], place: Place, watch: Watch, tell: Tell) -> None:
        courier = StoreCourier(
            self._store,
            job=ticket.job,
            step=ticket.step,
            generation=place.generation,
            rank=place.rank,
            world_size=place.world_size,
            patience_s=REPORT_PATIENCE_S,
        )
        try:
            outcome = saving.save(self._store, ticket, parts, courier, watch)
        except CheckpointDropped as error:
            if ticket.rank == 0:
                tell(SaveFailed(generation=place.generation, step=ticket.step, reason=str(error), dropped=True))
            return
        except CheckpointSuperseded as error:
            # By the attempt that adopted this worker meanwhile, or by one that it knows nothing of.
            if self._attempt == ticket.attempt:
                raise
            outcome = NotPublished(step=ticket.step, reason=str(error))
        except OSError as error:
            log.warning("the reports of the save of step %d did not come together: %s", ticket.step, error)
            if ticket.rank > 0:
                return
            outcome = NotPublished(step=ticket.step, reason=f"the ranks' reports did not come together: {error}")
        if outcome is not None:
            tell(self._message(outcome, place))

    def _ticket(self, step: int, engine: Engine, place: Place, skipped: int) -> Ticket:
        spec = self._brief.spec
        return Ticket(
            job=self._brief.job_id,
            step=step,
            attempt=self._attempt,
            rank=place.rank,
            world_size=place.world_size,
            samples=step * spec.training.batch_size,
            spec_digest=spec.digest(),
            scalars=engine.scalars(),
            extra=self._extra(skipped),
            retention=_retention(spec.checkpoint),
        )

    def _extra(self, skipped: int) -> dict[str, Any]:
        """What another program, or another spec, needs to go on from here as this job would."""
        spec = self._brief.spec.model_dump(mode="json", include={"model", "training", "precision"})
        return {
            "skipped_steps": skipped,
            "model": spec["model"],
            "ties": dict(self._ties),
            "precision": spec["precision"],
            "training": spec["training"],
            "random_numbers": {"seed": spec["training"]["seed"], "key": "blake2b-64 of 'SEED STEP MICRO_BATCH'"},
        }

    def _message(self, outcome: Published | NotPublished, place: Place) -> Saved | SaveFailed:
        if isinstance(outcome, NotPublished):
            return SaveFailed(generation=place.generation, step=outcome.step, reason=outcome.reason)
        return Saved(
            generation=place.generation,
            step=outcome.step,
            uri=f"{self._brief.checkpoint_uri.rstrip('/')}/{step_folder(self._brief.job_id, outcome.step)}",
            size_bytes=outcome.size_bytes,
            files=outcome.files,
            duration_s=outcome.duration_s,
            removed_steps=outcome.removed_steps,
        )

    # ---- resuming ------------------------------------------------------------------------------------------------

    def load_newest(
        self, engine: Engine, *, place: Place, owner: GroupOwner, tell: Callable[[PassedOver], None]
    ) -> Resumption:
        """Fill the engine from the newest whole checkpoint; a damaged one is passed over by all ranks together, and
        rank 0 tells which and why."""
        # A save that ends later could remove what is being read.
        self.settle(SETTLE_S)
        owner.barrier()
        below: int | None = None
        while True:
            step = self._newest(below, place, owner.store, tell)
            if step is None:
                return Resumption(step=None, touched=below is not None)
            damage: CheckpointError | None = None
            skipped = 0
            try:
                manifest = catalogue.inspect(self._store, self._brief.job_id, step)
                skipped = int(manifest.extra.get("skipped_steps", 0))
                read_into(engine, rank=place.rank, manifest=manifest, store=self._store)
            except (CheckpointDamaged, CheckpointIncomplete) as error:
                damage = error
                # Any of those who found something: rank 0 may have read other files.
                owner.store.set(f"damage/{step}", json.dumps([_file_of(error), str(error)]))
            if not owner.agree(float(damage is not None)):
                engine.commit_load()
                return Resumption(step=step, skipped=skipped, touched=True)
            if place.rank == 0:
                file, reason = json.loads(owner.store.get(f"damage/{step}"))
                tell(PassedOver(generation=place.generation, step=step, file=file, reason=reason))
            below = step

    def load_start(self, engine: Engine, *, place: Place, store: Store) -> Started | None:
        """Fill a new engine from the checkpoint that the spec starts from; None where it starts from nothing.

        Raises SpecError, so that the job fails in words: another checkpoint than the one that was asked for is never
        taken in its place.
        """
        origin = self._brief.spec.start_from
        if origin is None or origin.uri is None:
            return None
        try:
            base, _, job = origin.uri.rstrip("/").rpartition("/")
            there = open_store(base or "/")
            step = origin.step if origin.step is not None else _newest_of(there, job, place, store)
            manifest = catalogue.inspect(there, job, step)
            missing = read_into(
                engine,
                rank=place.rank,
                manifest=manifest,
                store=there,
                allow_missing=origin.allow_missing,
                weights_only=not origin.optimizer,
            )
        except (CheckpointError, OSError, ValueError) as error:
            fix = "restore that checkpoint, or submit with another origin, optimizer: false or allow_missing: true"
            raise SpecError(field="from", value=origin.uri, problem=str(error), fix=fix) from error
        engine.commit_load()
        return Started(generation=place.generation, uri=origin.uri, step=step, missing=missing)

    def _newest(self, below: int | None, place: Place, store: Store, tell: Callable[[PassedOver], None]) -> int | None:
        """Rank 0 looks, so that all take the same one."""
        key = f"newest/{below}"
        if place.rank == 0:
            self._claim()
            found = catalogue.newest_complete(self._store, self._brief.job_id, below=below)
            for error in found.passed_over:
                at = int(getattr(error, "step", 0))
                reason = str(error)
                tell(PassedOver(generation=place.generation, step=at, file=_file_of(error), reason=reason))
            store.set(key, json.dumps(found.manifest.step if found.manifest else None))
        step: int | None = json.loads(store.get(key))
        return step

    def _claim(self) -> None:
        """Once per worker: from now on no older attempt may write, and what it left half written goes."""
        if not self._claimed:
            claims.claim(self._store, job=self._brief.job_id, attempt=self._attempt)
            catalogue.collect(self._store, job=self._brief.job_id, attempt=self._attempt)
            self._claimed = True


def _retention(spec: CheckpointSpec) -> Retention:
    return Retention(keep_last=spec.keep_last, keep_every=spec.keep_every and spec.keep_every * spec.every_steps)


def _newest_of(there: CheckpointStore, job: str, place: Place, store: Store) -> int:
    """Rank 0 looks, so that all take the same one. Raises CheckpointIncomplete where there is none, on every rank."""
    if place.rank == 0:
        found = catalogue.newest_complete(there, job).manifest
        store.set("start", json.dumps(found.step if found else None))
    step: int | None = json.loads(store.get("start"))
    if step is None:
        raise CheckpointIncomplete(step=0, missing=["no whole checkpoint is there"], hint="name another folder")
    return step


def _file_of(error: CheckpointError) -> str | None:
    """Of a damaged checkpoint; one that was never published has none to restore."""
    return error.file if isinstance(error, CheckpointDamaged) else None


def _given(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    return parts


class _GroupCourier:
    """Reports through the generation's own store: quick, and at an end with the generation."""

    def __init__(self, store: Store, *, step: int, place: Place) -> None:
        self._store = store
        self._key = f"save/{step}/{place.rank}"
        self._others = [f"save/{step}/{rank}" for rank in range(1, place.world_size)]

    def send(self, text: str) -> None:
        self._store.set(self._key, text)

    def arrived(self) -> Sequence[str] | None:
        if self._others and not self._store.check(self._others):
            return None
        return [self._store.get(key).decode() for key in self._others]
