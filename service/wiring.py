"""The one place that knows the adapters: settings in, services out.

    async with build(settings) as services:
        submitted = await services.jobs.submit({"model": "gpt-tiny"})

Whoever runs the server calls `services.drain()` when it is told to stop and *before* it closes its port: with the
embedded Ray every attempt is ordered to checkpoint and leave, which it can hear only while the service still answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from service.adapters.bus import LocalBus
from service.adapters.clock import SystemClock
from service.adapters.cluster import RayCapacity
from service.adapters.database.migrate import ensure_schema, head, upgrade
from service.adapters.database.session import SqlDatabase
from service.adapters.database.sqlite_lock import FileLock
from service.adapters.disks import room
from service.adapters.embedded_ray import EmbeddedCapacity, EmbeddedRay
from service.adapters.files import LocalFiles
from service.adapters.local_process import LocalProcesses
from service.adapters.public_http import PublicHttp
from service.adapters.ray_jobs import RayAddress, RayJobs
from service.adapters.tokens import RandomTokens
from service.attempts import Attempts
from service.census import Census, Readiness
from service.checkpoints import Checkpoints
from service.cluster import Cluster
from service.descriptions import Descriptions
from service.domain.errors import Unavailable
from service.environments import Environments
from service.jobs import Jobs
from service.keys import Keys
from service.logs import Logs
from service.metrics import Metrics
from service.plans import Plans
from service.ports import Capacity, Launcher, RayHost
from service.reconciler import Reconciler
from service.retention import Retention
from service.settings import Settings
from service.stream import Stream
from service.webhooks import Deliveries, Webhooks


@dataclass(slots=True, kw_only=True)
class Services:
    """Every use case, and the tasks that run behind them."""

    settings: Settings
    jobs: Jobs
    metrics: Metrics
    logs: Logs
    checkpoints: Checkpoints
    plans: Plans
    cluster: Cluster
    keys: Keys
    attempts: Attempts
    stream: Stream
    census: Census
    reconciler: Reconciler
    retention: Retention
    webhooks: Webhooks
    deliveries: Deliveries
    database: SqlDatabase
    ray: RayHost
    lock: FileLock | None
    _opened: bool = False
    _task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def open(self) -> None:
        """Takes the home and brings the schema up (embedded database only): the rows can be read, nothing runs yet.
        Raises SetupError."""
        if self._opened:
            return
        if self.lock is not None:
            self.lock.take()
        await ensure_schema(self.database.url, may_upgrade=self.settings.database_url is None)
        self._opened = True

    async def start(self) -> None:
        """Opens, and starts the tasks. Raises SetupError."""
        await self.open()
        await self.stream.start()
        self.ray.begin()
        self._task = asyncio.create_task(self.reconciler.run(), name="reconciler")
        self.retention.start()
        self.deliveries.start()

    async def readiness(self) -> Readiness:
        """What the census found, and whether the reconciler still looks and the streams still follow."""
        found = await self.census.readiness()
        tasks = {"reconciler": self._task is not None and not self._task.done(), "stream": self.stream.alive}
        told = {name: "ok" if alive else "it has ended; restart the service" for name, alive in tasks.items()}
        return Readiness(ready=found.ready and all(tasks.values()), checks={**found.checks, **told})

    async def drain(self) -> None:
        """Before the port closes: with the embedded Ray, all attempts leave (bounded); with a cluster nothing stops."""
        if self._task is not None and self.ray.embedded and not self.attempts.leaving.is_set():
            self.attempts.leaving.set()
            with contextlib.suppress(Unavailable):
                await self.reconciler.empty(timeout_s=self.settings.leave_timeout_s)

    async def stop(self) -> None:
        """Drains where nobody has, ends the tasks and the embedded Ray; safe to call twice."""
        await self.drain()
        await self.stream.stop()
        await self.retention.stop()
        await self.deliveries.stop()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
            # A database that is away must not keep Ray alive; the lease runs out by itself.
            with contextlib.suppress(Unavailable):
                await self.reconciler.step_down()
            await self.ray.end()
        await self.database.close()
        self._opened = False
        if self.lock is not None:
            self.lock.release()


def upgrade_database(settings: Settings) -> str:
    """Brings the database of the settings to the newest revision, which it returns. Raises DatabaseUnavailable."""
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    upgrade(settings.resolved_database_url)
    return head()


@contextlib.asynccontextmanager
async def keys_of(settings: Settings) -> AsyncIterator[Keys]:
    """The keys in the database of the settings, beside a service that runs or without one: whoever may write the
    database needs no key. Raises DatabaseOutdated, DatabaseUnavailable."""
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    database = SqlDatabase(settings.resolved_database_url)
    try:
        is_new = settings.database_url is None and not settings.sqlite_path.exists()
        await ensure_schema(database.url, may_upgrade=is_new)
        yield Keys(database=database, clock=SystemClock(), tokens=RandomTokens())
    finally:
        await database.close()


def build(settings: Settings) -> Services:
    """Nothing is started, opened or written before `start`."""
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    clock, bus, tokens, files = SystemClock(), LocalBus(), RandomTokens(), LocalFiles(settings.folder)
    database = SqlDatabase(settings.resolved_database_url)
    ray, capacity, launcher = _data_plane(settings)
    near = files if settings.embedded else None
    descriptions = Descriptions(launcher=launcher, clock=clock, places=_places(settings))
    plans = Plans(capacity=capacity, descriptions=descriptions, files=near, database=database)
    attempts = Attempts(database=database, clock=clock, bus=bus, ray=ray, settings=settings, plans=plans)
    jobs = Jobs(
        database=database,
        clock=clock,
        bus=bus,
        files=files,
        tokens=tokens,
        plans=plans,
        environments=Environments(files=near, secrets_folder=str(settings.secrets)),
        embedded=settings.embedded,
    )
    return Services(
        settings=settings,
        jobs=jobs,
        metrics=Metrics(database=database),
        logs=Logs(database=database),
        checkpoints=_checkpoints(jobs, launcher, settings),
        plans=plans,
        cluster=Cluster(database=database, capacity=capacity, clock=clock),
        keys=Keys(database=database, clock=clock, tokens=tokens),
        attempts=attempts,
        stream=Stream(database=database, bus=bus),
        census=_census(attempts, settings),
        reconciler=_reconciler(jobs, attempts, capacity, launcher),
        retention=Retention(database=database, clock=clock, files=files, settings=settings),
        webhooks=Webhooks(database=database, clock=clock, tokens=tokens, networks=settings.webhook_networks),
        deliveries=Deliveries(database=database, clock=clock, post=PublicHttp(settings.webhook_networks)),
        database=database,
        ray=ray,
        lock=FileLock(settings.sqlite_path) if settings.database_url is None else None,
    )


def _places(settings: Settings) -> tuple[str, ...]:
    """Where a description of a model finds what its job would: as in an attempt's brief."""
    folder = ("--folder", str(settings.folder)) if settings.embedded else ()
    return ("--cache", str(settings.home / "cache"), "--secrets", str(settings.secrets), *folder)


def _census(attempts: Attempts, settings: Settings) -> Census:
    folders = {"home": str(settings.home), "checkpoints": settings.checkpoints}
    return Census(
        database=attempts.database,
        ray=attempts.ray,
        clock=attempts.clock,
        tally=attempts.tally,
        disks=lambda: room(folders),
    )


def _checkpoints(jobs: Jobs, launcher: Launcher, settings: Settings) -> Checkpoints:
    return Checkpoints(
        database=jobs.database,
        clock=jobs.clock,
        bus=jobs.bus,
        tokens=jobs.tokens,
        launcher=launcher,
        base_uri=settings.checkpoints,
    )


def _reconciler(jobs: Jobs, attempts: Attempts, capacity: Capacity, launcher: Launcher) -> Reconciler:
    return Reconciler(
        database=jobs.database,
        clock=jobs.clock,
        bus=jobs.bus,
        tokens=jobs.tokens,
        capacity=capacity,
        launcher=launcher,
        ray=attempts.ray,
        files=jobs.files,
        settings=attempts.settings,
        leaving=attempts.leaving,
        holder=f"{os.uname().nodename}:{os.getpid()}:{jobs.tokens.new_id()}",
    )


def _data_plane(settings: Settings) -> tuple[RayHost, Capacity, Launcher]:
    """Where workers run: a Ray of our own on this machine, or a cluster."""
    if settings.ray_address is None:
        ray = EmbeddedRay(settings)
        launcher = LocalProcesses(python=sys.executable, home=settings.home, environment=ray.environment)
        return ray, EmbeddedCapacity(ray), launcher
    capacity = RayCapacity(settings.ray_address, max_slots=settings.max_slots, slot_kind=settings.slot_kind)
    jobs = RayJobs(settings.ray_address)
    return RayAddress([capacity.close, jobs.close]), capacity, jobs
