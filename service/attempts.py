"""What a controller asks of the service: its brief, once, and the reply to each heartbeat."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from service.domain.arrangement import Arrangement
from service.domain.attempt import Attempt, AttemptState
from service.domain.checkpoint import CheckpointRecord
from service.domain.choice import Room
from service.domain.errors import AttemptOver, AttemptTokenWrong, Problem, RequestRefused
from service.domain.event import KIND_LIMIT, Event
from service.domain.job import Intent, Job, JobState
from service.domain.key import secret_hash
from service.domain.log import bounded
from service.domain.observation import Change, conclude, is_late, observe
from service.domain.text import counted, plain
from service.domain.wire import (
    PROTOCOL,
    Brief,
    CheckpointReport,
    EventReport,
    Fact,
    Heartbeat,
    LogLine,
    LostAttempt,
    Orders,
    Sample,
)
from service.ledger import NOTICES, RECONCILE, write_event, write_job
from service.plans import Plans
from service.ports import Bus, Clock, Database, RayHost, UnitOfWork
from service.samples import sample_data
from service.settings import Settings

NAMESPACE = "elastane"
COUNTED = (
    "resized",
    "recovered",
    "worker_lost",
    "worker_hung",
    "worker_crashed",
    "collective_failed",
    "checkpoint_failed",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """`leaving` is set when this service goes and takes its embedded Ray with it: every attempt is told to leave.
    `tally`: how often this process was told of what an operator watches, by kind of event."""

    database: Database
    clock: Clock
    bus: Bus
    ray: RayHost
    settings: Settings
    plans: Plans
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    tally: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(COUNTED, 0)))

    async def brief(self, attempt_id: str, token: str) -> Brief:
        """Raises AttemptTokenWrong, AttemptOver."""
        async with self.database.read() as work:
            await _authentic(work, attempt_id, token)
        address = await self.ray.ensure()
        async with self.database.write() as work:
            attempt = await work.attempts.get(attempt_id)
            job = await work.jobs.get(attempt.job_id, even_deleted=True)
            attempt = await work.attempts.get(attempt_id)
            if attempt.ended or job.attempt_id != attempt.id:
                raise AttemptOver(attempt_id)
            await work.attempts.save(replace(attempt, seen_at=self.clock.now()))
            told = replace(job.progress, told=_first(job))
            job = await write_job(work, replace(job, progress=told), before=job)
            await work.commit()
        return self._brief(job, attempt, address, await self.plans.room(job.spec))

    def _brief(self, job: Job, attempt: Attempt, address: str, room: Room) -> Brief:
        home = self.settings.home
        return Brief(
            job_id=job.id,
            attempt_id=attempt.id,
            attempt_number=attempt.number,
            spec=job.spec,
            workers=_first(job),
            checkpoint_uri=job.spec.checkpoint.uri or self.settings.checkpoints,
            cache_folder=str(home / "cache"),
            log_folder=str(home / "logs" / job.id),
            folder=str(self.settings.folder) if self.settings.embedded else None,
            secrets_folder=str(self.settings.secrets),
            ray_address=address,
            namespace=NAMESPACE,
            orphan_timeout_s=self.settings.orphan_timeout_s,
            slot_kind=self.settings.slot_kind,
            lost=self._lost(job),
            profile=room.profile_of(job.spec),
            memory=room.memory,
            has_disk=room.has_disk,
        )

    def _lost(self, job: Job) -> LostAttempt | None:
        """A job that recovers while a new attempt starts has lost the one before."""
        if job.state is not JobState.RECOVERING:
            return None
        stood_s = (self.clock.now() - (job.progress.stepped_at or job.since)).total_seconds()
        return LostAttempt(step=job.progress.step, stood_s=max(0.0, stood_s))

    async def heartbeat(self, attempt_id: str, token: str, beat: Heartbeat) -> Orders:
        """Takes in the facts that are new, once; the reply is what is wished of the attempt now.

        Raises AttemptOver where the attempt ended or another has replaced it: it must not even write a checkpoint.
        Raises AttemptTokenWrong, RequestRefused.
        """
        _check(beat, attempt_id)
        async with self.database.write() as work:
            attempt = await _authentic(work, attempt_id, token)
            job = await work.jobs.get(attempt.job_id, even_deleted=True)
            # Read again: only now the job's row is locked.
            attempt = await work.attempts.get(attempt_id)
            if attempt.ended or job.terminal or job.attempt_id != attempt.id:
                raise AttemptOver(attempt_id)
            told = Counter(fact.event.kind for fact in _fresh(beat, attempt) if fact.event is not None)
            job, attempt = await self._take_in(work, job, attempt, beat)
            request = await work.checkpoints.pending_request(job.id)
            await work.commit()
        self.tally.update({kind: told[kind] for kind in COUNTED})
        self.bus.wake(NOTICES)
        if attempt.ended:
            self.bus.wake(RECONCILE)
        return self._orders(job, attempt, request.id if request else None)

    async def _take_in(self, work: UnitOfWork, job: Job, attempt: Attempt, beat: Heartbeat) -> tuple[Job, Attempt]:
        now, fresh = self.clock.now(), _fresh(beat, attempt)
        samples = await _take_facts(work, job, attempt, fresh, now)
        change = observe(job, attempt, beat, samples, now=now)
        late = is_late(job, attempt, beat)
        attempt = replace(
            attempt,
            state=AttemptState.LIVE,
            seen_at=now,
            phase=attempt.phase if late else beat.phase,
            workers=attempt.workers if late else beat.workers,
            acknowledged=max(attempt.acknowledged, _next_fact(beat)),
        )
        if beat.outcome is not None:
            ending = conclude(change.job, beat.outcome, now=now)
            change = Change(job=ending.job, events=(*change.events, *ending.events))
            attempt = _ended(attempt, beat.outcome.result, beat.outcome.reason, now)
        else:
            told = replace(change.job.progress, told=change.job.granted)
            change = replace(change, job=replace(change.job, progress=told))
        await work.attempts.save(attempt)
        return await write_job(work, change.job, *change.events, before=job), attempt

    def _orders(self, job: Job, attempt: Attempt, request_id: str | None) -> Orders:
        action = _ACTIONS[job.intent]
        if attempt.ended or (action == "run" and (self.leaving.is_set() or job.granted == 0)):
            action = "leave"
        return Orders(
            acknowledged=attempt.acknowledged,
            workers=job.granted,
            action=action,
            checkpoint_request=request_id,
            arrangement=Arrangement.of(job.spec),
            auto=job.spec.auto,
        )


def _first(job: Job) -> int:
    """Workers that a new attempt asks for."""
    return max(1, job.granted)


_ACTIONS = {Intent.RUN: "run", Intent.PAUSE: "pause", Intent.CANCEL: "cancel"}


def _ended(attempt: Attempt, result: str, reason: str, now: datetime) -> Attempt:
    return replace(attempt, state=AttemptState.ENDED, ended_at=now, result=result, reason=bounded(reason))


async def _authentic(work: UnitOfWork, attempt_id: str, token: str) -> Attempt:
    """The token is looked up by its hash, so that timing tells nothing; a wrong one learns nothing of the attempt."""
    if not await work.attempts.knows_token(attempt_id, secret_hash(token)):
        raise AttemptTokenWrong(attempt_id)
    return await work.attempts.get(attempt_id)


def _check(beat: Heartbeat, attempt_id: str) -> None:
    if beat.protocol != PROTOCOL:
        fix = f"this service speaks protocol {PROTOCOL}: run workers of the same version"
        raise RequestRefused([Problem(field="protocol", value=beat.protocol, problem="not spoken here", fix=fix)])
    if not (0 <= beat.step < 2**40 and 0 <= beat.generation < 2**16 and beat.facts_from >= 0):
        fix = "count steps, generations and facts from 0"
        raise RequestRefused([Problem(field="step", value=str(beat.step)[:30], problem="out of range", fix=fix)])
    if beat.attempt_id != attempt_id:
        fix = "send the heartbeat to its own attempt"
        raise RequestRefused([Problem(field="attempt_id", value=beat.attempt_id, problem="another attempt", fix=fix)])


# ---- facts ---------------------------------------------------------------------------------------------------------


def _next_fact(beat: Heartbeat) -> int:
    return beat.facts_from + len(beat.facts)


def _fresh(beat: Heartbeat, attempt: Attempt) -> Sequence[Fact]:
    """Facts not seen before: a heartbeat whose answer was lost is sent again."""
    return beat.facts[max(0, attempt.acknowledged - beat.facts_from) :]


async def _take_facts(
    work: UnitOfWork, job: Job, attempt: Attempt, facts: Sequence[Fact], now: datetime
) -> list[Sample]:
    samples: list[Sample] = []
    for fact in facts:
        if fact.event is not None:
            await write_event(work, _event(job, attempt, fact.event, now))
            await _take_failure(work, fact.event)
        elif fact.samples is not None:
            samples += [_numbered(sample, attempt) for sample in fact.samples if 0 <= sample.step < 2**40]
        elif fact.checkpoint is not None:
            await _take_checkpoint(work, job, attempt, fact.checkpoint, now)
        elif fact.logs is not None:
            await work.logs.add(job.id, attempt.number, [_line(line) for line in fact.logs])
    if samples:
        await work.samples.add(job.id, samples)
        await work.notices.put("sample", job.id, {"samples": [sample_data(sample) for sample in samples]})
    return samples


def _numbered(sample: Sample, attempt: Attempt) -> Sample:
    return sample.model_copy(update={"generation": attempt.generation_before + sample.generation})


def _line(line: LogLine) -> LogLine:
    return line.model_copy(update={"text": bounded(line.text)})


def _event(job: Job, attempt: Attempt, report: EventReport, now: datetime) -> Event:
    """Its time is by the controller's clock, which may be ahead of ours: what has been told has been."""
    generation = None if report.generation is None else attempt.generation_before + report.generation
    return Event(
        job_id=job.id,
        kind=report.kind[:KIND_LIMIT],
        at=min(report.at, now),
        message=str(report.payload.get("message", "")),
        attempt=attempt.number,
        generation=generation,
        step=report.step,
        payload=plain({name: value for name, value in report.payload.items() if name != "message"}),
    )


async def _take_failure(work: UnitOfWork, report: EventReport) -> None:
    """A wish whose save failed is over, and may be made again; one that was dropped is still to be met."""
    request_id = report.payload.get("request_id")
    if report.kind == "checkpoint_failed" and isinstance(request_id, str) and report.step is not None:
        await work.checkpoints.meet(request_id, report.step)


async def _take_checkpoint(
    work: UnitOfWork, job: Job, attempt: Attempt, report: CheckpointReport, now: datetime
) -> None:
    if report.removed:
        await work.checkpoints.drop(job.id, report.step)
        return
    await work.checkpoints.add(
        CheckpointRecord(
            job_id=job.id,
            step=report.step,
            uri=report.uri,
            size_bytes=report.size_bytes,
            files=report.files,
            duration_s=report.duration_s,
            attempt=attempt.number,
            at=report.at,
        )
    )
    payload = {key: getattr(report, key) for key in ("step", "size_bytes", "files", "duration_s", "pause_s")}
    saved = Event(
        job_id=job.id,
        kind="checkpoint_saved",
        at=min(report.at, now),
        message=_saved(report),
        attempt=attempt.number,
        generation=job.progress.generation or None,
        step=report.step,
        payload=payload,
    )
    await write_event(work, saved)
    if report.request_id is not None:
        await work.checkpoints.meet(report.request_id, report.step)


def _saved(report: CheckpointReport) -> str:
    held = "" if report.pause_s is None else f", training stood still for {report.pause_s:.2f} s"
    size = f"{report.size_bytes / 1e6:.1f} MB, {counted(report.files, 'file')}"
    return f"Checkpoint of step {report.step} saved: {size}, in {report.duration_s:.2f} s{held}"
