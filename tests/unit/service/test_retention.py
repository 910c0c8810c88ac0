"""What is kept: by count of every job, by age of those that ended."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from service.domain.job import JobState
from service.domain.wire import LogLine
from service.retention import BATCH_ROWS, OLD_SAMPLES, Retention
from service.settings import Settings
from tests.contract.values import NOW, job, number, sample
from tests.fakes.memory_database import MemoryDatabase
from tests.fakes.world import FakeClock, FakeFiles

LINE = LogLine(at=NOW, text="hello")


async def test_a_job_that_ended_long_ago_keeps_a_chart_and_no_lines() -> None:
    database, clock, files = MemoryDatabase(), FakeClock(), FakeFiles()
    ended = clock.now() - timedelta(days=91)
    async with database.write() as work:
        await work.jobs.add(job(1, state=JobState.SUCCEEDED, ended_at=ended))
        await work.jobs.add(job(2))
        for index in (1, 2):
            await work.samples.add(number(index), [sample(step, float(step)) for step in range(OLD_SAMPLES + 500)])
            await work.logs.add(number(index), 1, [LINE])
        await work.commit()
    settings = Settings(home=Path("/nowhere"))
    await Retention(database=database, clock=clock, files=files, settings=settings).turn()
    totals, lines = [], []
    async with database.read() as work:
        for index in (1, 2):
            (found,) = await work.samples.series(number(index), names=["loss"], points=10, from_step=0)
            totals.append((found.total <= OLD_SAMPLES, found.points[0].min, found.points[-1].max))
            lines.append(len(await work.logs.after(number(index), rank=None, after=0, limit=10)))
    assert totals == [(True, 0.0, OLD_SAMPLES + 499.0), (False, 0.0, OLD_SAMPLES + 499.0)]
    assert lines == [0, 1]
    assert files.removed == [f"/nowhere/logs/{number(1)}"]


async def test_every_job_comes_round() -> None:
    database, clock, files = MemoryDatabase(), FakeClock(), FakeFiles()
    ended = clock.now() - timedelta(days=91)
    async with database.write() as work:
        for index in range(1, 46):
            await work.jobs.add(job(index, state=JobState.FAILED, ended_at=ended))
        await work.commit()
    retention = Retention(database=database, clock=clock, files=files, settings=Settings(home=Path("/nowhere")))
    for _ in range(3):
        await retention.turn()
    assert sorted(files.removed) == [f"/nowhere/logs/{number(index)}" for index in range(1, 46)]


class Watched(MemoryDatabase):
    """Notes how many samples went with each commit."""

    def __init__(self) -> None:
        self.went: list[int] = []
        super().__init__()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "shelves" and hasattr(self, "shelves"):
            self.went.append(len(self.shelves.samples) - len(value.samples))
        super().__setattr__(name, value)


async def test_no_transaction_touches_more_than_a_bounded_number_of_samples() -> None:
    database, clock, files = Watched(), FakeClock(), FakeFiles()
    async with database.write() as work:
        await work.jobs.add(job(1))
        for rank in range(3):
            await work.samples.add(number(1), [sample(step, 1.0, rank=rank) for step in range(BATCH_ROWS)])
        await work.commit()
    database.went.clear()
    settings = Settings(home=Path("/nowhere"), retained_samples=100)
    await Retention(database=database, clock=clock, files=files, settings=settings).turn()
    assert max(database.went) <= BATCH_ROWS
    assert len(database.shelves.samples) <= 3 * 100
