"""What users do with jobs. Each call writes rows and wakes the reconciler; nothing here touches a cluster."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from service.domain.admission import Decision, Quota, admit, files_of
from service.domain.arrangement import Arrangement
from service.domain.attempt import is_silent, silent_for_s
from service.domain.cluster import SlotKind
from service.domain.errors import (
    IdempotencyKeyReused,
    IllegalTransition,
    JobNotFound,
    JobStillLive,
    Problem,
    RequestRefused,
)
from service.domain.event import Event
from service.domain.job import DRIVEN, Intent, Job, JobState, Trigger, apply
from service.domain.key import ApiKey
from service.domain.offload import label
from service.domain.origin import Source, settle
from service.domain.page import Page
from service.domain.parsing import Parsed, parse, parse_bounds
from service.domain.plan import Plan
from service.domain.profile import profile_of
from service.domain.spec import JobSpec, WorkerBounds
from service.domain.text import askable
from service.domain.wire import WorkerReport
from service.environments import Environments
from service.ledger import NOTICES, RECONCILE, write_job
from service.plans import Plans
from service.ports import Bus, Clock, Database, Files, Tokens

LIST_LIMIT = 200
EVENTS_LIMIT = 1000
KEY_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """`job` None and `plan` set: a dry run. `report`: what the service decided for the user, field -> sentence."""

    job: Job | None
    created: bool
    plan: Plan | None
    report: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    database: Database
    clock: Clock
    bus: Bus
    files: Files
    tokens: Tokens
    plans: Plans
    environments: Environments
    # Globs are checked here only where workers run on this very machine.
    embedded: bool

    # ---- submit ----------------------------------------------------------------------------------------------------

    async def submit(
        self,
        document: object,
        *,
        idempotency_key: str | None = None,
        dry_run: bool = False,
        caller: ApiKey | None = None,
    ) -> Submitted:
        """`caller`: whose job it will be. Raises SpecRefused, IdempotencyKeyReused, RequestRefused."""
        _check_key(idempotency_key)
        parsed = parse(document)
        decision = await self._admit(parsed, caller)
        decision = replace(decision, report={**parsed.report, **decision.report})
        if dry_run:
            plan = await self.plans.of(decision.spec)
            return Submitted(job=None, created=False, plan=plan, report=decision.report)
        fingerprint = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
        job, event = self._new_job(decision.spec, caller)
        job, created = await self._accept(job, event, idempotency_key, fingerprint)
        self._wake()
        return Submitted(job=job, created=created, plan=None, report=decision.report)

    async def _admit(self, parsed: Parsed, caller: ApiKey | None) -> Decision:
        """The world is asked first, so that the rules stay pure: for the job to start from, for files on this machine,
        for memory if needed."""
        settled = settle(parsed.spec, await self._source(parsed.spec))
        spec = settled.spec
        shape = await self.plans.shape(spec)
        await self.environments.check(spec, shape)
        sizes = {path: await self.files.size_bytes(path) for path in files_of(spec)} if self.embedded else None
        memory = await self.plans.worker_memory(spec)
        # What a worker on CPUs did not ask for binds nobody; an accelerator's memory does.
        asks = bool(parsed.wishes) or spec.stage == "auto" or spec.resources.memory_gb is not None
        asks = asks or (memory is not None and memory.apart)
        decision = admit(
            spec,
            size_of=sizes.__getitem__ if sizes is not None else None,
            memory=memory if asks else None,
            shape=shape,
            machine=await self.plans.facts() if self.embedded else None,
            names_paths=not self.embedded,
            quota=await self._quota(spec, caller),
            wishes=parsed.wishes,
            profiles=await self.plans.known_profiles(spec) if asks else profile_of,
        )
        return replace(decision, report={**settled.report, **decision.report})

    async def _quota(self, spec: JobSpec, caller: ApiKey | None) -> Quota | None:
        """Where no cluster says what its slots are, the spec's own words decide."""
        if caller is None or caller.quota_slots is None:
            return None
        facts = await self.plans.facts()
        kind: SlotKind = facts.slot_kind if facts is not None else "gpu" if spec.resources.gpu else "cpu"
        return Quota(name=caller.name, slots=caller.quota_slots, slot_kind=kind)

    async def _source(self, spec: JobSpec) -> Source | None:
        if spec.start_from is None or spec.start_from.job is None:
            return None
        async with self.database.read() as work:
            try:
                job = await work.jobs.get(spec.start_from.job)
            except JobNotFound:
                return None
            return Source(spec=job.spec, checkpoints=await work.checkpoints.of(job.id))

    async def _accept(self, job: Job, event: Event, key: str | None, fingerprint: str) -> tuple[Job, bool]:
        async with self.database.write() as work:
            if key is not None:
                owner, known = await work.submissions.claim(
                    key=key, fingerprint=fingerprint, job_id=job.id, at=job.created_at
                )
                if known != fingerprint:
                    raise IdempotencyKeyReused(key=key, job_id=owner)
                if owner != job.id:
                    return await work.jobs.get(owner), False
            job = await write_job(work, job, event, before=None)
            await work.commit()
        return job, True

    def _new_job(self, spec: JobSpec, caller: ApiKey | None) -> tuple[Job, Event]:
        now, bounds = self.clock.now(), spec.workers
        reason = "Accepted; waiting for the next look of the reconciler"
        job = Job(
            id=self.tokens.new_id(),
            spec=spec,
            state=JobState.QUEUED,
            reason=reason,
            bounds=bounds,
            created_at=now,
            since=now,
            key_id=None if caller is None else caller.id,
        )
        payload: dict[str, object] = {"workers": {"min": bounds.min, "max": bounds.max}}
        payload |= _by(caller)
        return job, Event(job_id=job.id, kind="submitted", at=now, message=reason, payload=payload)

    # ---- read ------------------------------------------------------------------------------------------------------

    async def get(self, job_id: str) -> Job:
        """Raises JobNotFound. `reason` says so when the controller has been silent."""
        async with self.database.read() as work:
            job = await work.jobs.get(job_id)
            if job.state not in DRIVEN or job.attempt_id is None:
                return job
            attempt = await work.attempts.get(job.attempt_id)
        now = self.clock.now()
        if attempt.ended or not is_silent(attempt, now=now):
            return job
        silence = (
            f"The controller of attempt {attempt.number} is unreachable for {silent_for_s(attempt, now=now):.0f} s"
        )
        return replace(job, reason=f"{silence}; training may well go on, nothing is restarted while its process lives")

    async def list(
        self, *, state: str | None = None, name: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Job]:
        """Newest first. Raises RequestRefused."""
        _check_range("limit", limit, low=1, high=LIST_LIMIT)
        _check_cursor(cursor)
        if name is not None and not askable(name):
            return Page(items=(), next_cursor=None)
        async with self.database.read() as work:
            return await work.jobs.page(state=_state(state), name=name, limit=limit, cursor=cursor)

    async def events(self, job_id: str, *, after: int = 0, limit: int = 500) -> tuple[Event, ...]:
        """The timeline in order, from the event after number `after`."""
        _check_range("limit", limit, low=1, high=EVENTS_LIMIT)
        _check_range("after", after, low=0, high=2**63 - 1)
        async with self.database.read() as work:
            await work.jobs.get(job_id)
            return await work.events.after(job_id, after, limit)

    async def workers(self, job_id: str) -> tuple[WorkerReport, ...]:
        """The members of the present generation, by rank; none when no attempt drives the job."""
        async with self.database.read() as work:
            job = await work.jobs.get(job_id)
            if job.attempt_id is None or job.state not in DRIVEN:
                return ()
            return (await work.attempts.get(job.attempt_id)).members

    # ---- act -------------------------------------------------------------------------------------------------------

    async def scale(
        self,
        job_id: str,
        workers: WorkerBounds | int | object,
        *,
        stage: int | None = None,
        offload: object = None,
        caller: ApiKey | None = None,
    ) -> Job:
        """One number N: at most N, and a minimum no higher; workers of None: as they are.

        `stage` and `offload`, in a spec's forms, change how the state is held; None leaves them as they are. Raises
        RequestRefused, SpecRefused, IllegalTransition.
        """
        async with self.database.write() as work:
            job = await work.jobs.get(job_id)
            if job.terminal or job.intent is Intent.CANCEL:
                raise IllegalTransition(job_id=job.id, state=job.state, trigger="scale")
            bounds = job.bounds if workers is None else parse_bounds(workers, present=job.bounds)
            changed = replace(job, bounds=bounds, spec=_arranged(job, stage, offload))
            if changed == job:
                return job
            after = await write_job(work, changed, self._scaled(job, changed, caller), before=job)
            await work.commit()
        self._wake()
        return after

    async def prioritise(self, job_id: str, priority: int, *, caller: ApiKey | None = None) -> Job:
        """From the next look of the reconciler on. Raises RequestRefused, IllegalTransition where it has ended."""
        _check_range("priority", priority, low=0, high=100)
        async with self.database.write() as work:
            job = await work.jobs.get(job_id)
            if job.terminal or job.intent is Intent.CANCEL:
                raise IllegalTransition(job_id=job.id, state=job.state, trigger="change of priority")
            before = job.spec.priority
            if priority == before:
                return job
            changed = replace(job, spec=job.spec.model_copy(update={"priority": priority}))
            told = Event(
                job_id=job.id,
                kind="priority_changed",
                at=self.clock.now(),
                message=f"Priority changed from {before} to {priority}",
                attempt=job.attempt or None,
                step=job.progress.step,
                payload={"from": before, "to": priority, **_by(caller)},
            )
            after = await write_job(work, changed, told, before=job)
            await work.commit()
        self._wake()
        return after

    def _scaled(self, job: Job, changed: Job, caller: ApiKey | None) -> Event:
        payload: dict[str, object] = {"from": _span(job.bounds), "to": _span(changed.bounds), **_by(caller)}
        most = "worker" if changed.bounds.max == 1 else "workers"
        words = f"Scaled from {_words(job.bounds)} to {_words(changed.bounds)} {most}"
        before, after = Arrangement.of(job.spec), Arrangement.of(changed.spec)
        if after != before:
            words += f", from {before} to {after}"
            payload |= {"from_stage": before.stage, "to_stage": after.stage}
            payload |= {"from_offload": label(before.offload), "to_offload": label(after.offload)}
        return Event(
            job_id=job.id,
            kind="scaled",
            at=self.clock.now(),
            message=words,
            attempt=job.attempt or None,
            step=job.progress.step,
            payload=payload,
        )

    async def pause(self, job_id: str, *, caller: ApiKey | None = None) -> Job:
        """Checkpoint, release the workers. Nothing happens where it is pausing or paused already."""
        return await self._want(job_id, Intent.PAUSE, _pause_trigger, caller)

    async def resume(self, job_id: str, *, caller: ApiKey | None = None) -> Job:
        """Nothing happens where it is not paused; 409 where it ended or is being cancelled."""
        return await self._want(job_id, Intent.RUN, _resume_trigger, caller)

    async def cancel(self, job_id: str, *, caller: ApiKey | None = None) -> Job:
        """Nothing happens where it is cancelling or cancelled already; 409 where it ended otherwise."""
        return await self._want(job_id, Intent.CANCEL, _cancel_trigger, caller)

    async def _want(
        self, job_id: str, intent: Intent, choose: Callable[[Job], Trigger | None], caller: ApiKey | None
    ) -> Job:
        async with self.database.write() as work:
            job = await work.jobs.get(job_id)
            trigger = choose(job)
            if trigger is None:
                return job
            reason = f"{_ASKED[intent]} at step {job.progress.step}"
            wanted, now = replace(job, intent=intent), self.clock.now()
            after, event = apply(wanted, trigger, now=now, reason=reason, payload=_by(caller))
            after = await write_job(work, after, event, before=job)
            await work.commit()
        self._wake()
        return after

    async def delete(self, job_id: str) -> None:
        """An ended job and its checkpoints. The files go a little later; the job is not seen any more at once."""
        async with self.database.write() as work:
            job = await work.jobs.get(job_id)
            if not job.terminal:
                raise JobStillLive(job_id=job.id, state=job.state)
            await work.jobs.save(replace(job, deleted_at=self.clock.now()))
            await work.submissions.release(job.id)
            await work.commit()
        self._wake()

    def _wake(self) -> None:
        self.bus.wake(RECONCILE)
        self.bus.wake(NOTICES)


_ASKED = {Intent.RUN: "Resumed", Intent.PAUSE: "Pause asked for", Intent.CANCEL: "Cancel asked for"}


def _by(caller: ApiKey | None) -> dict[str, object]:
    """Whose key it was, for the timeline."""
    return {} if caller is None else {"key": caller.name}


def _span(bounds: WorkerBounds) -> dict[str, int]:
    return {"min": bounds.min, "max": bounds.max}


def _arranged(job: Job, stage: int | None, offload: object) -> JobSpec:
    """The spec with the changes, as legal as one that is submitted."""
    changes = {name: value for name, value in (("stage", stage), ("offload", offload)) if value is not None}
    if not changes:
        return job.spec
    left = [field for field in job.spec.auto if field not in changes]
    parsed = parse({**job.spec.model_dump(mode="json"), "auto": left, **changes})
    return admit(parsed.spec, size_of=None, wishes=parsed.wishes).spec


def _pause_trigger(job: Job) -> Trigger | None:
    if job.intent is Intent.PAUSE and job.state in (JobState.PAUSING, JobState.PAUSED):
        return None
    return Trigger.PAUSE


def _resume_trigger(job: Job) -> Trigger | None:
    live = not job.terminal and job.intent is Intent.RUN
    return None if live else Trigger.RESUME


def _cancel_trigger(job: Job) -> Trigger | None:
    return None if job.state in (JobState.CANCELLING, JobState.CANCELLED) else Trigger.CANCEL


def _state(name: str | None) -> JobState | None:
    if name is None:
        return None
    try:
        return JobState(name)
    except ValueError:
        fix = f"use one of {', '.join(JobState)}"
        raise RequestRefused([Problem(field="state", value=name[:100], problem="no such state", fix=fix)]) from None


def _check_range(field: str, value: int, *, low: int, high: int) -> None:
    if not low <= value <= high:
        problem = Problem(field=field, value=value, problem="out of range", fix=f"use {low} to {high}")
        raise RequestRefused([problem])


def _check_cursor(cursor: str | None) -> None:
    if cursor is not None and not askable(cursor):
        fix = "use next_cursor of the page before"
        raise RequestRefused([Problem(field="cursor", value=cursor[:50], problem="not a cursor", fix=fix)])


def _check_key(key: str | None) -> None:
    if key is not None and not (1 <= len(key) <= KEY_LIMIT and key.isprintable() and key.isascii()):
        fix = f"use 1 to {KEY_LIMIT} printable ASCII characters"
        raise RequestRefused([Problem(field="Idempotency-Key", value=key[:50], problem="not a legal key", fix=fix)])


def _words(bounds: WorkerBounds) -> str:
    return str(bounds.max) if bounds.min == bounds.max else f"{bounds.min}-{bounds.max}"
