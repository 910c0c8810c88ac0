"""Making it so: one tick looks at everything that is not at rest, decides with values, acts, writes under its lease.

Only the holder of the lease acts. The lease has a fencing token: a service that was stopped and wakes up later cannot
write under an old one. Acting comes after the decision is written and may be repeated: launches create or adopt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from service.domain.allocation import Quotas
from service.domain.attempt import Attempt, AttemptState, Liveness, backoff_s
from service.domain.checkpoint import job_folder
from service.domain.errors import (
    ClusterUnavailable,
    ElastaneError,
    ErasureFailed,
    JobNotFound,
    LeaseLost,
    RayNotStarted,
)
from service.domain.job import Job, JobState, Trigger, apply
from service.domain.key import quotas_of, secret_hash
from service.domain.log import bounded
from service.domain.observation import lose, settle
from service.domain.sharing import Sharing, share_out, wants_workers
from service.domain.text import counted
from service.domain.watching import EndByForce, Launch, Lost, Release, Verdict, judge, needs_look
from service.ledger import NOTICES, RECONCILE, write_job
from service.ports import Bus, Capacity, Clock, Database, Files, Launcher, LaunchOrder, RayHost, Tokens, UnitOfWork
from service.settings import Settings

log = logging.getLogger(__name__)

LEASE, TICK, TELLING = "reconciler", "tick", "telling who waits"
TOLD_AT_ONCE = 50
LEASE_TTL_S = 10.0
TICK_LIMIT_S = 4.0
REST = 3.0
REMOVED_AT_ONCE = 5000
_STOPPING = frozenset({JobState.CANCELLING, JobState.PAUSING})


@dataclass(slots=True, kw_only=True)
class Reconciler:
    database: Database
    clock: Clock
    bus: Bus
    tokens: Tokens
    capacity: Capacity
    launcher: Launcher
    ray: RayHost
    files: Files
    settings: Settings
    leaving: asyncio.Event
    holder: str
    _token: int | None = None
    _complaints: dict[str, str] = field(default_factory=dict)
    _shared: Sharing = field(default_factory=Sharing)
    # Who waits -> when it was last told why, in a count of tellings.
    _told: dict[str, int] = field(default_factory=dict)
    # Launches and removals that failed, by attempt and by job: how often, and when the next try is due.
    _held_back: dict[str, tuple[int, float]] = field(default_factory=dict)

    async def run(self) -> None:
        """Ticks until cancelled. A tick that fails is logged, and the next one starts from what is written. However
        often it is woken, it rests longer than it works: requests have the same process."""
        while True:
            began_s = self.clock.monotonic()
            try:
                await self.tick()
                self._complaints.pop(TICK, None)
            except Exception as error:
                self._complain(TICK, error)
            took_s = self.clock.monotonic() - began_s
            await asyncio.sleep(min(self.settings.tick_s, REST * took_s))
            await self.bus.wait(RECONCILE, timeout_s=self.settings.tick_s)

    async def tick(self) -> None:
        self._token = await self._lead()
        if self._token is None:
            return
        jobs, attempts, quotas = await self._open()
        by_id = {job.id: job for job in jobs}
        known = {attempt.id for attempt in attempts} | by_id.keys()
        self._held_back = {name: held for name, held in self._held_back.items() if name in known}
        now, driven = self.clock.now(), {attempt.job_id for attempt in attempts if not attempt.ended}
        watched = [each for each in attempts if each.job_id in by_id and needs_look(each, now=now)]
        stopping = [job for job in jobs if job.state in _STOPPING and job.id not in driven]
        for attempt in watched:
            await self._guarded(attempt.job_id, self._watch(by_id[attempt.job_id], attempt))
        for job in stopping:
            await self._guarded(job.id, self._settle(job.id))
        if not self.leaving.is_set():
            # Read again only where something may have been changed here: each write looks at its row anew anyway.
            await self._share_out(*(await self._open() if watched or stopping else (jobs, attempts, quotas)))
        for job in jobs:
            if job.deleted_at is not None:
                await self._guarded(job.id, self._remove(job))

    async def _open(self) -> tuple[Sequence[Job], Sequence[Attempt], Quotas]:
        async with self.database.read() as work:
            keys = await work.keys.all()
            return await work.jobs.open(), await work.attempts.open(), quotas_of(keys)

    async def _guarded(self, name: str, work: Awaitable[None]) -> None:
        """One job's trouble is not another's, be it a bug of ours; a lost lease ends the tick."""
        try:
            await work
            self._complaints.pop(name, None)
        except LeaseLost:
            raise
        except Exception as error:
            self._complain(name, error)

    def _complain(self, name: str, error: Exception) -> None:
        """Each complaint once, until it changes: a tick comes every second."""
        if self._complaints.get(name) != str(error):
            self._complaints[name] = str(error)
            expected = isinstance(error, ElastaneError)
            log.warning("reconciler: %s: %s", name, error, exc_info=None if expected else error)

    # ---- lease -----------------------------------------------------------------------------------------------------

    async def _lead(self) -> int | None:
        async with self.database.write() as work:
            token = await work.leases.take(LEASE, holder=self.holder, ttl_s=LEASE_TTL_S)
            await work.commit()
        return token

    async def step_down(self) -> None:
        """Another service need not wait for the lease to run out."""
        if self._token is None:
            return
        async with self.database.write() as work:
            await work.leases.release(LEASE, self._token)
            await work.commit()
        self._token = None

    async def _check_lease(self, work: UnitOfWork) -> None:
        if self._token is None:
            raise LeaseLost(name=LEASE, token=-1)
        await work.leases.check(LEASE, self._token)

    # ---- attempts that there are -----------------------------------------------------------------------------------

    async def _watch(self, job: Job, attempt: Attempt) -> None:
        liveness = await self.launcher.liveness(attempt.id)
        verdict = judge(job, attempt, liveness, now=self.clock.now())
        if verdict is not None:
            await self._follow(job, attempt, verdict)

    async def _follow(self, job: Job, attempt: Attempt, verdict: Verdict) -> None:
        match verdict:
            case Release():
                await self._release(attempt)
            case Lost(reason=reason):
                await self._lost(attempt, reason)
            case EndByForce(reason=reason):
                log.warning("job %s attempt %s is ended: %s", job.id, attempt.id, reason)
                await self.launcher.end(attempt.id, force=True)
            case Launch(alive=True):
                await self._launched(attempt)
            case Launch():
                if not self.leaving.is_set():
                    await self._try_launch(job, attempt)

    async def _release(self, attempt: Attempt) -> None:
        async with self.database.write() as work:
            await self._check_lease(work)
            job = await work.jobs.get(attempt.job_id, even_deleted=True)
            attempt = await work.attempts.get(attempt.id)
            await work.attempts.save(replace(attempt, released=True))
            if job.attempt_id == attempt.id:
                await write_job(work, replace(job, progress=replace(job.progress, workers=0, told=0)), before=job)
            await work.commit()
        self.bus.wake(NOTICES)

    async def _lost(self, attempt: Attempt, reason: str) -> None:
        """Read again under the lock: a last heartbeat may have come meanwhile."""
        now = self.clock.now()
        async with self.database.write() as work:
            await self._check_lease(work)
            job = await work.jobs.get(attempt.job_id, even_deleted=True)
            attempt = await work.attempts.get(attempt.id)
            if attempt.ended:
                return
            ended = replace(attempt, state=AttemptState.ENDED, ended_at=now, result="lost", reason=reason)
            await work.attempts.save(replace(ended, released=True, workers=()))
            if not job.terminal and job.attempt_id == attempt.id:
                gone = replace(job, progress=replace(job.progress, workers=0, told=0))
                change = lose(gone, cause="system", reason=reason, now=now)
                await write_job(work, change.job, *change.events, before=job)
            await work.commit()
        self.bus.wake(NOTICES)

    async def _settle(self, job_id: str) -> None:
        """Ends the stop of a job that no attempt drives: nobody else would."""
        async with self.database.write() as work:
            await self._check_lease(work)
            job = await work.jobs.get(job_id, even_deleted=True)
            driven = any(each.job_id == job_id and not each.ended for each in await work.attempts.open())
            if driven or job.state not in _STOPPING:
                return
            change = settle(job, now=self.clock.now())
            await write_job(work, change.job, *change.events, before=job)
            await work.commit()
        self.bus.wake(NOTICES)

    # ---- allocation ------------------------------------------------------------------------------------------------

    async def _share_out(self, jobs: Sequence[Job], attempts: Sequence[Attempt], quotas: Quotas) -> None:
        """Not longer than a part of the lease: what is left is for the next tick, which comes at once."""
        began_s, driven = self.clock.monotonic(), {attempt.job_id for attempt in attempts}
        facts, waits = await self.capacity.facts(), dict[str, str]()
        patience_s, now = self.settings.launch_patience_s, self.clock.now()
        shared = share_out(self._shared, jobs, facts, quotas=quotas, patience_s=patience_s, now=now)
        self._shared = shared
        for job in shared.wanting:
            workers, reason = shared.granted[job.id], shared.reasons.get(job.id)
            if workers != job.granted:
                await self._guarded(job.id, self._give(job, workers, reason))
            elif reason and reason != job.reason:
                waits[job.id] = reason
            if workers and job.id not in driven:
                await self._guarded(job.id, self._attempt(job.id))
            if self.clock.monotonic() - began_s > TICK_LIMIT_S:
                self.bus.wake(RECONCILE)
                return
        if waits:
            await self._guarded(TELLING, self._tell(self._next_told(waits)))

    def _next_told(self, waits: Mapping[str, str]) -> list[tuple[str, str]]:
        """A queue's numbers change for all who wait at once: some of them are told in each tick, who was not told for
        longest first."""
        self._told = {job_id: at for job_id, at in self._told.items() if job_id in self._shared.reasons}
        chosen = sorted(waits, key=lambda job_id: self._told.get(job_id, 0))[:TOLD_AT_ONCE]
        newest = max(self._told.values(), default=0) + 1
        self._told |= dict.fromkeys(chosen, newest)
        return [(job_id, waits[job_id]) for job_id in chosen]

    async def _give(self, job: Job, workers: int, reason: str | None) -> None:
        async with self.database.write() as work:
            await self._check_lease(work)
            fresh = await work.jobs.get(job.id)
            if not wants_workers(fresh):
                return
            after = replace(fresh, granted=workers, reason=reason or fresh.reason)
            await write_job(work, after, before=fresh)
            await work.commit()
        self.bus.wake(NOTICES)

    async def _tell(self, waits: Sequence[tuple[str, str]]) -> None:
        """Why each of them waits, in one transaction."""
        async with self.database.write() as work:
            await self._check_lease(work)
            for job_id, reason in waits:
                with suppress(JobNotFound):
                    fresh = await work.jobs.get(job_id)
                    if wants_workers(fresh):
                        await write_job(work, replace(fresh, reason=reason), before=fresh)
            await work.commit()
        self.bus.wake(NOTICES)

    # ---- launch ----------------------------------------------------------------------------------------------------

    async def _attempt(self, job_id: str) -> None:
        """Writes the attempt first, so that whoever continues after a crash finds it and starts the same one."""
        now = self.clock.now()
        async with self.database.write() as work:
            await self._check_lease(work)
            job = await work.jobs.get(job_id)
            due = job.retry_at is None or job.retry_at <= now
            if not due or not job.granted or job.state not in (JobState.QUEUED, JobState.RECOVERING):
                return
            attempt = Attempt(
                id=self.tokens.new_id(),
                job_id=job.id,
                number=job.attempt + 1,
                state=AttemptState.LAUNCHING,
                created_at=now,
                generation_before=job.progress.generation,
            )
            await work.attempts.add(attempt)
            started = replace(job, attempt=attempt.number, attempt_id=attempt.id, retry_at=None)
            reason = f"Starting {counted(job.granted, 'worker')} (attempt {attempt.number})"
            payload = {"attempt": attempt.number, "workers": job.granted}
            after, event = apply(started, Trigger.LAUNCH, now=now, reason=reason, payload=payload)
            await write_job(work, after, event, before=job)
            await work.commit()
        self.bus.wake(NOTICES)
        await self._try_launch(after, attempt)

    async def _try_launch(self, job: Job, attempt: Attempt) -> None:
        """What keeps it from starting is told to the user; a later tick tries again."""
        failures, due = self._held_back.get(attempt.id, (0, 0.0))
        if failures and self.clock.monotonic() < due:
            return
        try:
            await self._launch(job, attempt)
            self._held_back.pop(attempt.id, None)
        except (ClusterUnavailable, RayNotStarted) as error:
            await self._give(job, job.granted, f"Cannot start yet: {error.detail}")
            raise
        except ElastaneError:
            raise
        except Exception as error:
            wait_s = backoff_s(failures + 1)
            self._held_back[attempt.id] = failures + 1, self.clock.monotonic() + wait_s
            why = bounded(f"Cannot start yet: {type(error).__name__}: {error}; trying again in {wait_s:.0f} s")
            log.warning("job %s attempt %s: %s", job.id, attempt.id, why)
            await self._give(job, job.granted, why)
            raise

    async def _launch(self, job: Job, attempt: Attempt) -> None:
        """A new token each time: the one of an earlier try may never have arrived, and all of them stay good."""
        await self.ray.ensure()
        token = self.tokens.secret()
        async with self.database.write() as work:
            await self._check_lease(work)
            await work.attempts.add_token(attempt.id, secret_hash(token))
            await work.commit()
        order = LaunchOrder(
            job_id=job.id,
            attempt_id=attempt.id,
            number=attempt.number,
            token=token,
            service_url=self.settings.service_url,
        )
        await self.launcher.launch(order)
        await self._launched(attempt)

    async def _launched(self, attempt: Attempt) -> None:
        async with self.database.write() as work:
            await self._check_lease(work)
            fresh = await work.attempts.get(attempt.id)
            if fresh.state is AttemptState.LAUNCHING and fresh.launched_at is None:
                await work.attempts.save(replace(fresh, launched_at=self.clock.now()))
                await work.commit()

    # ---- cleaning up -----------------------------------------------------------------------------------------------

    async def _remove(self, job: Job) -> None:
        if not await self._emptied(job.id):
            return
        base = job.spec.checkpoint.uri or self.settings.checkpoints
        if "://" not in base:
            await self.files.remove_folder(job_folder(base_uri=base, job_id=job.id))
        elif not await self._erased(base, job.id):
            return
        await self.files.remove_folder(str(self.settings.home / "logs" / job.id))
        async with self.database.write() as work:
            await self._check_lease(work)
            await work.jobs.remove(job.id)
            await work.commit()

    async def _emptied(self, job_id: str) -> bool:
        """Whether its processes are gone, and then its samples and lines: of what may be millions some in each tick."""
        async with self.database.write() as work:
            await self._check_lease(work)
            if any(attempt.job_id == job_id for attempt in await work.attempts.open()):
                return False
            gone = await work.samples.drop(job_id, limit=REMOVED_AT_ONCE)
            gone += await work.logs.prune(job_id, keep=0, limit=REMOVED_AT_ONCE)
            await work.commit()
        return gone < REMOVED_AT_ONCE

    async def _erased(self, uri: str, job_id: str) -> bool:
        """Whether a process of the data plane has emptied the job's folder of an object store; tried again, later."""
        failures, due = self._held_back.get(job_id, (0, 0.0))
        if failures and self.clock.monotonic() < due:
            return False
        try:
            return await self.launcher.erased(uri=uri, job_id=job_id)
        except ErasureFailed:
            self._held_back[job_id] = failures + 1, self.clock.monotonic() + backoff_s(failures + 1)
            raise

    # ---- leaving ---------------------------------------------------------------------------------------------------

    async def empty(self, *, timeout_s: float) -> None:
        """Waits until no attempt is left, told to leave by their orders; then by signal, then by force."""
        end = self.clock.monotonic() + timeout_s
        while (left := await self._processes()) and self.clock.monotonic() < end:
            self.bus.wake(RECONCILE)
            await asyncio.sleep(0.2)
        for force in (False, True):
            for attempt in left:
                await self.launcher.end(attempt.id, force=force)
            if left and not force:
                await asyncio.sleep(2.0)

    async def _processes(self) -> list[Attempt]:
        async with self.database.read() as work:
            found = await work.attempts.open()
        return [attempt for attempt in found if await self.launcher.liveness(attempt.id) is Liveness.ALIVE]
