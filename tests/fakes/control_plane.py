"""The use cases over fakes, and a controller to drive them with: what a test of the control plane starts from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.attempts import Attempts
from service.checkpoints import Checkpoints
from service.cluster import Cluster
from service.descriptions import Descriptions
from service.domain.attempt import Attempt
from service.domain.job import Job
from service.domain.wire import Fact, Heartbeat, Orders, Outcome, Phase, WorkerReport
from service.environments import Environments
from service.jobs import Jobs
from service.keys import Keys
from service.plans import Plans
from service.ports import Database
from service.reconciler import Reconciler
from service.settings import Settings
from service.stream import Stream
from tests.fakes.memory_database import MemoryDatabase
from tests.fakes.world import FakeBus, FakeCapacity, FakeClock, FakeFiles, FakeLauncher, FakeRay, FakeTokens

TINY: dict[str, Any] = {"model": "gpt-tiny", "training": {"steps": 10}}


@dataclass
class ControlPlane:
    """One service; `rival` makes another on the same database."""

    slots: int = 4
    database: Database = field(default_factory=MemoryDatabase)
    clock: FakeClock = field(default_factory=FakeClock)
    launcher: FakeLauncher = field(default_factory=FakeLauncher)
    tokens: FakeTokens = field(default_factory=FakeTokens)
    holder: str = "service-1"

    def __post_init__(self) -> None:
        self.settings = Settings(home=Path("/nowhere"))
        self.bus, self.ray, self.files = FakeBus(), FakeRay(), FakeFiles()
        self.capacity = FakeCapacity(self.slots)
        descriptions = Descriptions(launcher=self.launcher, clock=self.clock)
        self.plans = Plans(capacity=self.capacity, descriptions=descriptions, files=self.files, database=self.database)
        world: dict[str, Any] = {"database": self.database, "clock": self.clock, "bus": self.bus}
        self.jobs = Jobs(
            **world,
            files=self.files,
            tokens=self.tokens,
            plans=self.plans,
            environments=Environments(files=self.files, secrets_folder="/secrets"),
            embedded=True,
        )
        self.attempts = Attempts(**world, ray=self.ray, settings=self.settings, plans=self.plans)
        self.checkpoints = Checkpoints(**world, tokens=self.tokens, launcher=self.launcher, base_uri="/c")
        self.cluster = Cluster(database=self.database, capacity=self.capacity, clock=self.clock)
        self.keys = Keys(database=self.database, clock=self.clock, tokens=self.tokens)
        self.stream = Stream(database=self.database, bus=self.bus)
        self.reconciler = Reconciler(
            **world,
            tokens=self.tokens,
            capacity=self.capacity,
            launcher=self.launcher,
            ray=self.ray,
            files=self.files,
            settings=self.settings,
            leaving=self.attempts.leaving,
            holder=self.holder,
        )

    async def submit(self, **fields: Any) -> Job:
        submitted = await self.jobs.submit({**TINY, **fields})
        assert submitted.job is not None
        return submitted.job

    async def tick(self, seconds: float = 1.0) -> None:
        self.clock.pass_s(seconds)
        await self.reconciler.tick()

    async def started(self, **fields: Any) -> tuple[Job, Controller]:
        """A job whose controller has just been launched."""
        job = await self.submit(**fields)
        await self.tick()
        job = await self.jobs.get(job.id)
        return job, self.controller(job)

    def controller(self, job: Job) -> Controller:
        order = next(order for order in self.launcher.orders if order.attempt_id == job.attempt_id)
        return Controller(self, job.id, order.attempt_id, order.token)

    async def running(self, **fields: Any) -> tuple[Job, Controller]:
        job, controller = await self.started(**fields)
        await controller.beat("running", step=1, workers=job.granted)
        return await self.jobs.get(job.id), controller

    async def attempt(self, attempt_id: str) -> Attempt:
        async with self.database.read() as work:
            return await work.attempts.get(attempt_id)

    async def kinds(self, job_id: str) -> list[str]:
        return [event.kind for event in await self.jobs.events(job_id)]


@dataclass
class Controller:
    """The data plane's end of the wire."""

    plane: ControlPlane
    job_id: str
    attempt_id: str
    token: str
    facts_from: int = 0

    async def beat(
        self,
        phase: Phase,
        *,
        step: int = 0,
        workers: int = 0,
        generation: int = 1,
        facts: tuple[Fact, ...] = (),
        outcome: Outcome | None = None,
        note: str = "",
    ) -> Orders:
        beat = Heartbeat(
            job_id=self.job_id,
            attempt_id=self.attempt_id,
            phase=phase,
            step=step,
            generation=generation,
            world_size=workers,
            workers=tuple(worker(rank, of=workers) for rank in range(workers)),
            facts_from=self.facts_from,
            facts=facts,
            outcome=outcome,
            note=note,
            at=self.plane.clock.now(),
        )
        orders = await self.plane.attempts.heartbeat(self.attempt_id, self.token, beat)
        self.facts_from = orders.acknowledged
        return orders

    async def end(self, result: str, *, step: int = 10, cause: str | None = None, reason: str = "") -> Orders:
        """Says how it ended; the process is still there until `exit`."""
        outcome = Outcome.model_validate({"result": result, "cause": cause, "reason": reason})
        return await self.beat("ended", step=step, outcome=outcome)

    def exit(self) -> None:
        self.plane.launcher.alive.discard(self.attempt_id)


def worker(rank: int, *, of: int = 1) -> WorkerReport:
    """One of `of` members; the next one keeps the copy of its shard."""
    return WorkerReport(
        worker_id=f"w{rank}",
        rank=rank,
        pid=1000 + rank,
        node="n0",
        device=f"cpu:{rank}",
        state="running",
        buddy=(rank + 1) % of if of > 1 else None,
    )
