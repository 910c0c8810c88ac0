"""A generation's checkpoints: every rank writes its part, rank 0 publishes; all agree on the one to resume from."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta

from torch._C._distributed_c10d import Store

from service.domain.wire import Brief
from workers.checkpoint import catalogue, claims, retention
from workers.checkpoint.blocks import Checksum
from workers.checkpoint.errors import CheckpointDamaged, CheckpointIncomplete, CheckpointNotWritten
from workers.checkpoint.parts import parts_of
from workers.checkpoint.reader import read_into
from workers.checkpoint.retention import Retention
from workers.checkpoint.store import open_store
from workers.checkpoint.writer import FileReport, WrittenPart, publish, write_rank
from workers.engine.protocol import Engine
from workers.layout.interval import Interval
from workers.worker.loop import Place
from workers.worker.messages import Saved, SaveFailed
from workers.worker.process_group import GroupOwner

# The slowest rank's disk; a rank that dies meanwhile is noticed by the controller, which aborts the wait.
WRITE_TIMEOUT = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """`step` None: there is no whole checkpoint. `passed_over` says why each newer one was not used.
    `touched`: whether the engine's state was written to."""

    step: int | None
    skipped: int = 0
    passed_over: tuple[str, ...] = ()
    touched: bool = False


class Checkpoints:
    """Of one job, seen by one rank."""

    def __init__(self, brief: Brief) -> None:
        self._brief = brief
        self._store = open_store(brief.checkpoint_uri)
        self._claimed = False

    def save(self, step: int, *, engine: Engine, place: Place, store: Store, skipped: int) -> Saved | SaveFailed | None:
        """Called by every rank at one boundary. Rank 0 answers, the others do not wait for it."""
        began = time.perf_counter()
        try:
            report = write_rank(
                self._store,
                job=self._brief.job_id,
                step=step,
                attempt=self._brief.attempt_number,
                rank=place.rank,
                world_size=place.world_size,
                parts=parts_of(engine, rank=place.rank),
            )
            message = _to_json(report)
        except CheckpointNotWritten as error:
            message = json.dumps({"error": str(error)})
        if place.rank > 0:
            store.set(f"save/{step}/{place.rank}", message)
            return None
        others = [f"save/{step}/{rank}" for rank in range(1, place.world_size)]
        store.wait(others, WRITE_TIMEOUT)
        messages = [message, *(store.get(key).decode() for key in others)]
        failures = [json.loads(each)["error"] for each in messages if "error" in json.loads(each)]
        if failures:
            return SaveFailed(generation=place.generation, step=step, reason=failures[0])
        try:
            size_bytes = self._publish(step, [_from_json(each) for each in messages], engine, skipped)
            removed = self._prune(step)
        except (CheckpointNotWritten, CheckpointIncomplete, CheckpointDamaged) as error:
            return SaveFailed(generation=place.generation, step=step, reason=str(error))
        return Saved(
            generation=place.generation,
            step=step,
            uri=f"{self._brief.checkpoint_uri.rstrip('/')}/{self._brief.job_id}/step-{step:08d}",
            size_bytes=size_bytes,
            files=place.world_size + 1,
            duration_s=time.perf_counter() - began,
            removed_steps=removed,
        )

    def load_newest(self, engine: Engine, *, place: Place, owner: GroupOwner) -> Resumption:
        """Fill the engine from the newest whole checkpoint; a damaged one is passed over by all ranks together."""
        below: int | None = None
        passed_over: tuple[str, ...] = ()
        while True:
            step, why = self._newest(below, place, owner.store)
            passed_over = (*passed_over, *why)
            if step is None:
                return Resumption(step=None, passed_over=passed_over, touched=below is not None)
            damage, skipped = "", 0
            try:
                manifest = catalogue.inspect(self._store, self._brief.job_id, step)
                skipped = int(manifest.extra.get("skipped_steps", 0))
                read_into(engine, rank=place.rank, manifest=manifest, store=self._store)
            except (CheckpointDamaged, CheckpointIncomplete) as error:
                damage = str(error)
            if not owner.agree(float(bool(damage))):
                engine.commit_load()
                return Resumption(step=step, skipped=skipped, passed_over=passed_over, touched=True)
            passed_over = (*passed_over, damage or f"checkpoint of step {step}: another rank found it damaged")
            below = step

    def _newest(self, below: int | None, place: Place, store: Store) -> tuple[int | None, tuple[str, ...]]:
        """Rank 0 looks, so that all take the same one."""
        key = f"newest/{below}"
        if place.rank == 0:
            self._claim()
            found = catalogue.newest_complete(self._store, self._brief.job_id, below=below)
            why = [str(error) for error in found.passed_over]
            store.set(key, json.dumps([found.manifest.step if found.manifest else None, why]))
        step, why = json.loads(store.get(key))
        return step, tuple(why) if place.rank == 0 else ()

    def _claim(self) -> None:
        """Once per worker: from now on no older attempt may write, and what it left half written goes."""
        if not self._claimed:
            claims.claim(self._store, job=self._brief.job_id, attempt=self._brief.attempt_number)
            catalogue.collect(self._store, job=self._brief.job_id, attempt=self._brief.attempt_number)
            self._claimed = True

    def _publish(self, step: int, reports: Sequence[FileReport], engine: Engine, skipped: int) -> int:
        publish(
            self._store,
            job=self._brief.job_id,
            step=step,
            attempt=self._brief.attempt_number,
            samples=step * self._brief.spec.training.batch_size,
            spec_digest=self._brief.spec.digest(),
            reports=reports,
            scalars=engine.scalars(),
            extra={"skipped_steps": skipped},
        )
        return sum(report.checksum.size_bytes for report in reports)

    def _prune(self, step: int) -> tuple[int, ...]:
        return retention.prune(
            self._store,
            job=self._brief.job_id,
            attempt=self._brief.attempt_number,
            published=step,
            rule=Retention(keep_last=self._brief.spec.checkpoint.keep_last),
        )


def _to_json(report: FileReport) -> str:
    return json.dumps(asdict(report))


def _from_json(text: str) -> FileReport:
    fields = json.loads(text)
    parts = tuple(
        WrittenPart(
            name=part["name"],
            shape=tuple(part["shape"]),
            dtype=part["dtype"],
            interval=Interval(**part["interval"]),
            key=part["key"],
        )
        for part in fields["parts"]
    )
    return FileReport(
        file=fields["file"],
        rank=fields["rank"],
        world_size=fields["world_size"],
        checksum=Checksum(**{**fields["checksum"], "blocks": tuple(fields["checksum"]["blocks"])}),
        parts=parts,
    )
