"""The outbox: ids become visible in the order of commits, so that a reader's cursor passes nothing by."""

from __future__ import annotations

import asyncio

from service.domain.notice import Notice
from service.ports import Database
from tests.contract.values import number


async def put(database: Database, *names: str, job: int = 1) -> None:
    async with database.write() as work:
        for name in names:
            await work.notices.put("event", number(job), {"name": name})
        await work.commit()


async def names(database: Database, after: int = 0, job_id: str | None = None) -> list[str]:
    async with database.read() as work:
        return [notice.data["name"] for notice in await work.notices.after(after, job_id=job_id, limit=100)]


async def test_notices_are_read_in_order_from_a_cursor_on(database: Database) -> None:
    await put(database, "a", "b")
    await put(database, "c", job=2)
    async with database.read() as work:
        found = await work.notices.after(0, job_id=None, limit=2)
    assert [notice.data["name"] for notice in found] == ["a", "b"]
    assert await names(database, after=found[-1].id) == ["c"]
    assert await names(database, job_id=number(2)) == ["c"]


async def test_pruning_keeps_the_newest_and_never_gives_an_id_again(database: Database) -> None:
    await put(database, *"abcde")
    async with database.write() as work:
        assert [await work.notices.prune(keep=2, limit=2) for _ in range(3)] == [2, 1, 0]
        await work.commit()
    async with database.read() as work:
        floor, head = await work.notices.span()
    assert await names(database) == ["d", "e"]
    assert (head - floor, await names(database, after=floor)) == (2, ["d", "e"])
    await put(database, "f")
    assert await names(database, after=head) == ["f"]


async def test_an_empty_outbox_spans_nothing(database: Database) -> None:
    async with database.read() as work:
        assert await work.notices.span() == (0, 0)


async def test_a_reader_that_follows_sees_every_notice_of_concurrent_writers_once(database: Database) -> None:
    """Without order among commits a smaller id would appear behind the cursor now and then."""
    wanted, seen = 60, list[Notice]()

    async def write(writer: int) -> None:
        for index in range(wanted // 6):
            async with database.write() as work:
                await work.notices.put("event", number(writer), {"name": f"{writer}-{index}"})
                await asyncio.sleep(0)
                await work.commit()

    async def follow() -> None:
        while len(seen) < wanted:
            async with database.read() as work:
                cursor = seen[-1].id if seen else 0
                seen.extend(await work.notices.after(cursor, job_id=None, limit=7))
            await asyncio.sleep(0)

    async with asyncio.timeout(30):
        await asyncio.gather(follow(), *(write(writer) for writer in range(6)))
    assert len({notice.data["name"] for notice in seen}) == wanted
