"""The database port in memory: values are frozen, so a transaction is a copy of the shelves that hold them."""

from __future__ import annotations

import asyncio
import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from service.domain.attempt import Attempt
from service.domain.checkpoint import CheckpointRecord, CheckpointRequest
from service.domain.errors import AttemptNotFound, JobNotFound, KeyNotFound, LeaseLost, StaleWrite
from service.domain.event import Event
from service.domain.job import Job, JobState
from service.domain.key import ApiKey
from service.domain.log import LogRecord
from service.domain.notice import Notice, NoticeKind
from service.domain.page import Page
from service.domain.webhook import Delivery, Webhook
from service.domain.wire import LogLine
from tests.fakes.memory_samples import SampleKey, Samples
from tests.fakes.memory_webhooks import Webhooks


@dataclass
class Shelves:
    jobs: dict[str, Job] = field(default_factory=dict)
    submissions: dict[str, tuple[str, str]] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    tokens: set[tuple[str, str]] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)
    samples: dict[SampleKey, tuple[float | None, datetime]] = field(default_factory=dict)
    checkpoints: dict[tuple[str, int], CheckpointRecord] = field(default_factory=dict)
    requests: dict[str, CheckpointRequest] = field(default_factory=dict)
    logs: list[LogRecord] = field(default_factory=list)
    keys: dict[str, tuple[ApiKey, str]] = field(default_factory=dict)
    leases: dict[str, tuple[str, int, float]] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    webhooks: dict[str, Webhook] = field(default_factory=dict)
    deliveries: dict[int, tuple[Delivery, datetime]] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=lambda: {"event": 0, "log": 0, "notice": 0, "delivery": 0})

    def next(self, counter: str) -> int:
        self.counters[counter] += 1
        return self.counters[counter]

    def snapshot(self) -> Shelves:
        return Shelves(**{name: copy.copy(value) for name, value in vars(self).items()})


class MemoryDatabase:
    """`now` is the lease clock, moved by the test."""

    def __init__(self) -> None:
        self.shelves = Shelves()
        self.now = 0.0
        self.turn = asyncio.Lock()

    def write(self) -> MemoryUnit:
        return MemoryUnit(self, writes=True)

    def read(self) -> MemoryUnit:
        return MemoryUnit(self, writes=False)

    async def ping(self) -> None:
        return None


class MemoryUnit:
    def __init__(self, database: MemoryDatabase, *, writes: bool) -> None:
        self._database = database
        self._writes = writes

    async def __aenter__(self) -> Self:
        if self._writes:
            await self._database.turn.acquire()
        self._shelves = shelves = self._database.shelves.snapshot()
        self.jobs = Jobs(shelves)
        self.submissions = Submissions(shelves)
        self.attempts = Attempts(shelves)
        self.events = Events(shelves)
        self.samples = Samples(shelves)
        self.checkpoints = Checkpoints(shelves)
        self.logs = Logs(shelves)
        self.keys = Keys(shelves)
        self.leases = Leases(shelves, self._database)
        self.notices = Notices(shelves)
        self.webhooks = Webhooks(shelves)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writes:
            self._database.turn.release()

    async def commit(self) -> None:
        self.notices.flush()
        self._database.shelves = self._shelves.snapshot()


@dataclass
class Rows:
    shelves: Shelves


class Jobs(Rows):
    async def add(self, job: Job) -> None:
        self.shelves.jobs[job.id] = job

    async def get(self, job_id: str, *, even_deleted: bool = False) -> Job:
        job = self.shelves.jobs.get(job_id)
        if job is None or (job.deleted_at is not None and not even_deleted):
            raise JobNotFound(job_id)
        return job

    async def save(self, job: Job) -> Job:
        known = self.shelves.jobs.get(job.id)
        if known is None or known.version != job.version:
            raise StaleWrite(job_id=job.id, version=job.version)
        self.shelves.jobs[job.id] = replace(job, version=job.version + 1)
        return self.shelves.jobs[job.id]

    async def page(self, *, state: JobState | None, name: str | None, limit: int, cursor: str | None) -> Page[Job]:
        found = [
            job
            for job in sorted(self.shelves.jobs.values(), key=lambda job: job.id, reverse=True)
            if job.deleted_at is None
            and (state is None or job.state is state)
            and (name is None or job.name == name)
            and (cursor is None or job.id < cursor)
        ]
        return Page(items=tuple(found[:limit]), next_cursor=found[limit - 1].id if len(found) > limit else None)

    async def open(self) -> tuple[Job, ...]:
        driven = {attempt.job_id for attempt in self.shelves.attempts.values() if not attempt.released}
        return tuple(
            job
            for _, job in sorted(self.shelves.jobs.items())
            if not job.terminal or job.progress.workers or job.deleted_at is not None or job.id in driven
        )

    async def counts(self) -> Mapping[JobState, int]:
        counts: dict[JobState, int] = {}
        for job in self.shelves.jobs.values():
            if job.deleted_at is None:
                counts[job.state] = counts.get(job.state, 0) + 1
        return counts

    async def remove(self, job_id: str) -> None:
        shelves = self.shelves
        shelves.jobs.pop(job_id, None)
        gone = {attempt.id for attempt in shelves.attempts.values() if attempt.job_id == job_id}
        shelves.attempts = {key: row for key, row in shelves.attempts.items() if key not in gone}
        shelves.tokens = {pair for pair in shelves.tokens if pair[0] not in gone}
        shelves.events = [event for event in shelves.events if event.job_id != job_id]
        shelves.samples = {key: row for key, row in shelves.samples.items() if key[0] != job_id}
        shelves.checkpoints = {key: row for key, row in shelves.checkpoints.items() if key[0] != job_id}
        shelves.requests = {key: row for key, row in shelves.requests.items() if row.job_id != job_id}
        shelves.logs = [line for line in shelves.logs if line.job_id != job_id]


class Submissions(Rows):
    async def claim(self, *, key: str, fingerprint: str, job_id: str, at: datetime) -> tuple[str, str]:
        return self.shelves.submissions.setdefault(key, (job_id, fingerprint))

    async def release(self, job_id: str) -> None:
        kept = {key: row for key, row in self.shelves.submissions.items() if row[0] != job_id}
        self.shelves.submissions = kept


class Attempts(Rows):
    async def add(self, attempt: Attempt) -> None:
        self.shelves.attempts[attempt.id] = attempt

    async def get(self, attempt_id: str) -> Attempt:
        if attempt_id not in self.shelves.attempts:
            raise AttemptNotFound(attempt_id)
        return self.shelves.attempts[attempt_id]

    async def save(self, attempt: Attempt) -> None:
        self.shelves.attempts[attempt.id] = attempt

    async def open(self) -> tuple[Attempt, ...]:
        return tuple(
            attempt for _, attempt in sorted(self.shelves.attempts.items()) if not attempt.released or not attempt.ended
        )

    async def add_token(self, attempt_id: str, token_hash: str) -> None:
        self.shelves.tokens.add((attempt_id, token_hash))

    async def forget_tokens(self, job_id: str) -> int:
        kept = {pair for pair in self.shelves.tokens if not self._over(job_id, pair[0])}
        gone = len(self.shelves.tokens) - len(kept)
        self.shelves.tokens = kept
        return gone

    def _over(self, job_id: str, attempt_id: str) -> bool:
        attempt = self.shelves.attempts[attempt_id]
        return attempt.job_id == job_id and attempt.released

    async def knows_token(self, attempt_id: str, token_hash: str) -> bool:
        return (attempt_id, token_hash) in self.shelves.tokens


class Events(Rows):
    async def add(self, event: Event) -> Event:
        payload = json.loads(json.dumps(dict(event.payload), default=str))
        times = [each.at for each in self.shelves.events if each.job_id == event.job_id]
        at = max([event.at, *times[-1:]])
        numbered = replace(event, id=self.shelves.next("event"), at=at, payload=payload)
        self.shelves.events.append(numbered)
        return numbered

    async def after(self, job_id: str, after: int, limit: int) -> tuple[Event, ...]:
        found = [event for event in self.shelves.events if event.job_id == job_id and event.id > after]
        return tuple(found[:limit])

    async def prune(self, job_id: str, *, keep: int, limit: int) -> int:
        own = [event.id for event in self.shelves.events if event.job_id == job_id]
        gone = set(own[: max(0, len(own) - keep)][:limit])
        self.shelves.events = [event for event in self.shelves.events if event.id not in gone]
        return len(gone)


class Checkpoints(Rows):
    async def add(self, record: CheckpointRecord) -> None:
        known = self.shelves.checkpoints.get((record.job_id, record.step))
        if known is None or known.attempt <= record.attempt:
            kept = replace(record, pinned=record.pinned or (known is not None and known.pinned))
            self.shelves.checkpoints[(record.job_id, record.step)] = kept

    async def pin(self, job_id: str, step: int, *, pinned: bool) -> None:
        known = self.shelves.checkpoints.get((job_id, step))
        if known is not None:
            self.shelves.checkpoints[(job_id, step)] = replace(known, pinned=pinned)

    async def drop(self, job_id: str, step: int) -> None:
        self.shelves.checkpoints.pop((job_id, step), None)

    async def of(self, job_id: str) -> tuple[CheckpointRecord, ...]:
        own = [record for key, record in self.shelves.checkpoints.items() if key[0] == job_id]
        return tuple(sorted(own, key=lambda record: -record.step))

    async def request(self, request: CheckpointRequest) -> None:
        self.shelves.requests[request.id] = request

    async def pending_request(self, job_id: str) -> CheckpointRequest | None:
        own = [row for _, row in sorted(self.shelves.requests.items()) if row.job_id == job_id]
        return next((row for row in own if row.met_at_step is None), None)

    async def meet(self, request_id: str, step: int) -> None:
        if request_id in self.shelves.requests:
            self.shelves.requests[request_id] = replace(self.shelves.requests[request_id], met_at_step=step)


class Logs(Rows):
    async def add(self, job_id: str, attempt: int, lines: Sequence[LogLine]) -> None:
        for line in lines:
            facts: dict[str, Any] = {"rank": line.rank, "at": line.at, "level": line.level, "text": line.text}
            self.shelves.logs.append(LogRecord(id=self.shelves.next("log"), job_id=job_id, attempt=attempt, **facts))

    async def after(self, job_id: str, *, rank: int | None, after: int, limit: int) -> tuple[LogRecord, ...]:
        own = [line for line in self.shelves.logs if line.job_id == job_id and line.id > after]
        return tuple(line for line in own if rank is None or line.rank == rank)[:limit]

    async def prune(self, job_id: str, *, keep: int, limit: int) -> int:
        own = [line.id for line in self.shelves.logs if line.job_id == job_id]
        gone = set(own[: max(0, len(own) - keep)][:limit])
        self.shelves.logs = [line for line in self.shelves.logs if line.id not in gone]
        return len(gone)


class Keys(Rows):
    async def add(self, key: ApiKey, secret_hash: str) -> None:
        self.shelves.keys[key.id] = (key, secret_hash)

    async def all(self) -> tuple[ApiKey, ...]:
        return tuple(key for _, (key, _) in sorted(self.shelves.keys.items()))

    async def by_hash(self, secret_hash: str) -> ApiKey | None:
        return next((key for key, known in self.shelves.keys.values() if known == secret_hash), None)

    async def revoke(self, key_id: str, at: datetime) -> ApiKey:
        if key_id not in self.shelves.keys:
            raise KeyNotFound(key_id)
        key, known = self.shelves.keys[key_id]
        self.shelves.keys[key_id] = (replace(key, revoked_at=key.revoked_at or at), known)
        return self.shelves.keys[key_id][0]

    async def limit(self, key_id: str, slots: int | None) -> ApiKey:
        if key_id not in self.shelves.keys:
            raise KeyNotFound(key_id)
        key, known = self.shelves.keys[key_id]
        self.shelves.keys[key_id] = (replace(key, quota_slots=slots), known)
        return self.shelves.keys[key_id][0]

    async def touch(self, key_id: str, at: datetime) -> None:
        key, known = self.shelves.keys[key_id]
        self.shelves.keys[key_id] = (replace(key, last_used_at=at), known)


class Leases:
    def __init__(self, shelves: Shelves, database: MemoryDatabase) -> None:
        self._shelves = shelves
        self._database = database

    async def take(self, name: str, *, holder: str, ttl_s: float) -> int | None:
        owner, token, expires = self._shelves.leases.get(name, ("", 0, -math.inf))
        if owner != holder and expires > self._database.now:
            return None
        token = token if owner == holder else token + 1
        self._shelves.leases[name] = (holder, token, self._database.now + ttl_s)
        return token

    async def check(self, name: str, token: int) -> None:
        if self._shelves.leases.get(name, ("", 0, 0.0))[1] != token:
            raise LeaseLost(name=name, token=token)

    async def release(self, name: str, token: int) -> None:
        if self._shelves.leases.get(name, ("", 0, 0.0))[1] == token:
            self._shelves.leases[name] = ("", token, -math.inf)


class Notices:
    def __init__(self, shelves: Shelves) -> None:
        self._shelves = shelves
        self._waiting: list[tuple[NoticeKind, str, Mapping[str, Any]]] = []

    async def put(self, kind: NoticeKind, job_id: str, data: Mapping[str, Any]) -> None:
        self._waiting.append((kind, job_id, json.loads(json.dumps(data, default=str))))

    def flush(self) -> None:
        for kind, job_id, data in self._waiting:
            number = self._shelves.next("notice")
            self._shelves.notices.append(Notice(id=number, kind=kind, job_id=job_id, data=data))
        self._waiting = []

    async def after(self, after: int, *, job_id: str | None, limit: int) -> tuple[Notice, ...]:
        found = [one for one in self._shelves.notices if one.id > after and job_id in (None, one.job_id)]
        return tuple(found[:limit])

    async def span(self) -> tuple[int, int]:
        notices = self._shelves.notices
        return (notices[0].id - 1, notices[-1].id) if notices else (0, 0)

    async def prune(self, *, keep: int, limit: int) -> int:
        gone = self._shelves.notices[: -max(1, keep)][:limit]
        self._shelves.notices = self._shelves.notices[len(gone) :]
        return len(gone)
