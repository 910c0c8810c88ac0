"""Streams: in order, each once, from any cursor; a slow reader costs nobody else anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest

from service import stream as stream_module
from service.domain.errors import JobNotFound
from service.domain.notice import Notice
from service.ports import UnitOfWork
from tests.fakes.control_plane import ControlPlane


@pytest.fixture
async def streaming(plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    await plane.stream.start()
    yield plane
    await plane.stream.stop()


async def read(notices: AsyncIterator[Notice], count: int) -> list[Notice]:
    async with asyncio.timeout(5):
        return [await anext(notices) for _ in range(count)]


async def write(plane: ControlPlane, count: int, job_id: str = "j") -> None:
    async with plane.database.write() as work:
        for index in range(count):
            await work.notices.put("event", job_id, {"n": index})
        await work.commit()


async def test_a_job_s_life_arrives_in_order(streaming: ControlPlane) -> None:
    notices = streaming.stream.subscribe()
    first = asyncio.ensure_future(anext(notices))
    await asyncio.sleep(0)
    job = await streaming.submit()
    got = [await first, *await read(notices, 1)]
    assert [(notice.kind, notice.job_id) for notice in got] == [("event", job.id), ("state", job.id)]
    assert got[0].data["kind"] == "submitted"
    assert got[1].data["state"] == "queued"


async def test_a_client_that_comes_back_misses_nothing_and_sees_nothing_twice(streaming: ControlPlane) -> None:
    await write(streaming, 10)
    everything = await read(streaming.stream.subscribe(after=0), 10)
    for cut in range(10):
        rest = await read(streaming.stream.subscribe(after=everything[cut].id), 9 - cut)
        assert rest == everything[cut + 1 :]


async def test_a_client_far_behind_pages_through_the_database(
    streaming: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "RECENT", 5)
    monkeypatch.setattr(stream_module, "BATCH", 4)
    await write(streaming, 30)
    got = await read(streaming.stream.subscribe(after=0), 30)
    assert [notice.data["n"] for notice in got] == list(range(30))
    assert [notice.id for notice in got] == sorted({notice.id for notice in got})


async def test_a_client_behind_what_is_kept_is_told_to_load_anew_and_goes_on_from_now(
    streaming: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "RECENT", 5)
    await write(streaming, 30)
    await read(streaming.stream.subscribe(after=29), 1)
    async with streaming.database.write() as work:
        await work.notices.prune(keep=3, limit=1000)
        await work.commit()
    notices = streaming.stream.subscribe(after=2)
    (resync,) = await read(notices, 1)
    assert (resync.kind, resync.id) == ("resync", 30)
    await write(streaming, 1)
    (after,) = await read(notices, 1)
    assert (after.kind, after.id) == ("event", 31)


async def test_a_cursor_from_the_future_is_told_to_load_anew(streaming: ControlPlane) -> None:
    await write(streaming, 3)
    (resync,) = await read(streaming.stream.subscribe(after=10**6), 1)
    assert (resync.kind, resync.id) == ("resync", 3)


async def test_one_job_s_stream_holds_that_job_s_notices_alone(streaming: ControlPlane) -> None:
    first, second = await streaming.submit(), await streaming.submit()
    got = await read(streaming.stream.subscribe(second.id, after=0), 2)
    assert {notice.job_id for notice in got} == {second.id}
    await streaming.jobs.cancel(first.id)
    await streaming.jobs.cancel(second.id)
    got = await read(streaming.stream.subscribe(second.id, after=got[-1].id), 2)
    assert [notice.kind for notice in got] == ["event", "state"]
    assert {notice.job_id for notice in got} == {second.id}


async def test_the_stream_of_no_job_is_not_found(streaming: ControlPlane) -> None:
    with pytest.raises(JobNotFound):
        await read(streaming.stream.subscribe("nobody"), 1)


async def test_a_reader_that_does_not_read_holds_nobody_up(streaming: ControlPlane) -> None:
    slow, fast = streaming.stream.subscribe(after=0), streaming.stream.subscribe(after=0)
    await write(streaming, 1)
    await read(slow, 1)
    await write(streaming, 500)
    assert len(await read(fast, 501)) == 501
    assert len(await read(slow, 500)) == 500


async def test_stopping_ends_every_subscription(plane: ControlPlane) -> None:
    await plane.stream.start()
    notices = plane.stream.subscribe()
    waiting = asyncio.ensure_future(anext(notices, None))
    for _ in range(5):
        await asyncio.sleep(0)
    await plane.stream.stop()
    async with asyncio.timeout(5):
        assert await waiting is None


async def test_a_turn_that_fails_does_not_end_the_stream(
    streaming: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = asyncio.Event()

    def fail() -> UnitOfWork:
        failed.set()
        raise ValueError("a row that cannot be read")

    with monkeypatch.context() as broken:
        broken.setattr(streaming.stream, "database", _Reading(fail))
        async with asyncio.timeout(5):
            await failed.wait()
    assert streaming.stream.alive
    await write(streaming, 1)
    assert len(await read(streaming.stream.subscribe(after=0), 1)) == 1


@dataclass
class _Reading:
    read: Callable[[], UnitOfWork]
