"""What only a database with several writers at once can get wrong."""

from __future__ import annotations

import asyncio

from service.adapters.database.migrate import upgrade
from service.adapters.database.notices import SqlNotices
from service.adapters.database.session import SqlDatabase
from tests.contract.values import number


async def test_a_notice_cannot_overtake_one_whose_transaction_is_slow_to_commit(postgres_url: str) -> None:
    await asyncio.to_thread(upgrade, postgres_url)
    database = SqlDatabase(postgres_url)

    async def write_fast() -> None:
        async with database.write() as work:
            await work.notices.put("event", number(2), {"name": "fast"})
            await work.commit()

    async with database.write() as slow:
        assert isinstance(slow.notices, SqlNotices)
        await slow.notices.put("event", number(1), {"name": "slow"})
        await slow.notices.flush()
        fast = asyncio.create_task(write_fast())
        done, _ = await asyncio.wait({fast}, timeout=0.5)
        assert not done
        await slow.commit()
    await fast
    async with database.read() as work:
        found = await work.notices.after(0, job_id=None, limit=10)
    assert [notice.data["name"] for notice in found] == ["slow", "fast"]
    await database.close()
