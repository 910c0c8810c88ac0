"""A service killed at any point, and two services at once: nothing is lost, nothing runs twice."""

from __future__ import annotations

import asyncio

import pytest

from service.domain.cluster import ClusterFacts
from service.domain.errors import DatabaseUnavailable, LeaseLost
from service.domain.job import JobState
from service.reconciler import LEASE_TTL_S
from tests.fakes.control_plane import ControlPlane
from tests.fakes.memory_database import MemoryDatabase
from tests.fakes.world import FakeCapacity

# ---- killed at any point ---------------------------------------------------------------------------------------------


async def test_a_launch_that_was_written_but_not_made_is_made_by_whoever_comes_next(plane: ControlPlane) -> None:
    job = await plane.submit()
    plane.launcher.reachable = False
    await plane.tick()
    assert plane.launcher.orders == []
    plane.launcher.reachable = True
    await plane.tick()
    seen = await plane.jobs.get(job.id)
    assert (seen.attempt, [order.attempt_id for order in plane.launcher.orders]) == (1, [seen.attempt_id])
    await plane.controller(seen).beat("running", step=1, workers=1)


async def test_a_launch_that_was_made_but_not_noted_is_adopted(plane: ControlPlane) -> None:
    """The service dies between starting the process and writing that it did."""
    job = await plane.submit()
    launch, made = plane.launcher.launch, plane.launcher.orders

    async def launch_and_die(order):  # type: ignore[no-untyped-def]
        await launch(order)
        raise DatabaseUnavailable("killed")

    plane.launcher.launch = launch_and_die  # type: ignore[method-assign]
    await plane.tick()
    plane.launcher.launch = launch  # type: ignore[method-assign]
    for _ in range(3):
        await plane.tick()
    seen = await plane.jobs.get(job.id)
    assert (len(made), seen.attempt) == (1, 1)
    assert (await plane.attempt(made[0].attempt_id)).launched_at is not None
    await plane.controller(seen).beat("running", step=1, workers=1)
    assert (await plane.jobs.get(job.id)).state is JobState.RUNNING


class DyingDatabase(MemoryDatabase):
    """Refuses every commit after the first `allowed`, as if the process had been killed there."""

    allowed = 10**9

    def write(self):  # type: ignore[no-untyped-def]
        unit, database = super().write(), self
        commit = unit.commit

        async def commit_or_die() -> None:
            if database.allowed == 0:
                raise KeyboardInterrupt
            database.allowed -= 1
            await commit()

        unit.commit = commit_or_die  # type: ignore[method-assign]
        return unit


@pytest.mark.parametrize("point", range(12))
async def test_a_service_killed_at_any_commit_loses_nothing_and_doubles_nothing(point: int) -> None:
    database = DyingDatabase()
    first = ControlPlane(database=database)
    job = await first.submit(workers=2)
    database.allowed = point
    try:
        await first.tick()
        await first.controller(await first.jobs.get(job.id)).beat("running", step=1, workers=2)
        await first.tick()
    except KeyboardInterrupt:
        database.turn = asyncio.Lock()
    database.allowed = 10**9
    database.now += LEASE_TTL_S + 1
    second = ControlPlane(
        database=database, launcher=first.launcher, tokens=first.tokens, clock=first.clock, holder="service-2"
    )
    for _ in range(3):
        await second.tick()
    seen = await second.jobs.get(job.id)
    assert (seen.attempt, len(second.launcher.orders), seen.granted) == (1, 1, 2)
    controller = second.controller(seen)
    await controller.beat("running", step=2, workers=2)
    await controller.end("succeeded")
    assert (await second.jobs.get(job.id)).state is JobState.SUCCEEDED
    kinds = await second.kinds(job.id)
    assert [kinds.count(kind) for kind in ("submitted", "launched", "started", "succeeded")] == [1, 1, 1, 1]


# ---- two services ----------------------------------------------------------------------------------------------------


def rivals() -> tuple[ControlPlane, ControlPlane]:
    first = ControlPlane()
    second = ControlPlane(
        database=first.database, launcher=first.launcher, tokens=first.tokens, clock=first.clock, holder="service-2"
    )
    return first, second


async def test_of_two_services_one_acts() -> None:
    first, second = rivals()
    await first.submit()
    await first.reconciler.tick()
    await second.submit()
    await second.reconciler.tick()
    assert len(first.launcher.orders) == 1


async def test_a_service_that_overslept_its_lease_writes_nothing() -> None:
    """It is stopped while it looks at the cluster; when it wakes up another leads."""
    first, second = rivals()
    job = await first.submit()

    class Oversleeping(FakeCapacity):
        async def facts(self) -> ClusterFacts:
            assert isinstance(first.database, MemoryDatabase)
            first.database.now += LEASE_TTL_S + 1
            await second.reconciler.tick()
            await second.jobs.scale(job.id, 2)
            return await super().facts()

    first.reconciler.capacity = Oversleeping()
    with pytest.raises(LeaseLost):
        await first.reconciler.tick()
    seen = await first.jobs.get(job.id)
    assert (seen.granted, seen.attempt, len(first.launcher.orders)) == (1, 1, 1)


async def test_stepping_down_lets_another_lead_at_once() -> None:
    first, second = rivals()
    await first.reconciler.tick()
    await first.reconciler.step_down()
    await second.submit()
    await second.reconciler.tick()
    assert len(second.launcher.orders) == 1
