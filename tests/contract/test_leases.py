"""One holder at a time, and a token that tells an old holder from the present one."""

from __future__ import annotations

import pytest

from service.domain.errors import LeaseLost
from service.ports import Database


async def take(database: Database, holder: str, ttl_s: float = 60) -> int | None:
    async with database.write() as work:
        token = await work.leases.take("r", holder=holder, ttl_s=ttl_s)
        await work.commit()
    return token


async def check(database: Database, token: int) -> None:
    async with database.write() as work:
        await work.leases.check("r", token)


async def test_a_lease_has_one_holder_who_may_renew(database: Database) -> None:
    first = await take(database, "a")
    assert first is not None
    assert await take(database, "b") is None
    assert await take(database, "a") == first
    await check(database, first)


async def test_a_lease_that_ran_out_goes_to_another_with_a_larger_token(database: Database) -> None:
    first = await take(database, "a", ttl_s=-1)
    second = await take(database, "b")
    assert first is not None
    assert second is not None
    assert second > first
    with pytest.raises(LeaseLost):
        await check(database, first)
    assert await take(database, "a") is None


async def test_a_released_lease_is_free_and_its_token_worthless(database: Database) -> None:
    first = await take(database, "a")
    assert first is not None
    async with database.write() as work:
        await work.leases.release("r", first)
        await work.commit()
    second = await take(database, "b")
    assert second is not None
    assert second > first
    with pytest.raises(LeaseLost):
        await check(database, first)


async def test_releasing_with_an_old_token_frees_nothing(database: Database) -> None:
    first = await take(database, "a", ttl_s=-1)
    await take(database, "b")
    assert first is not None
    async with database.write() as work:
        await work.leases.release("r", first)
        await work.commit()
    assert await take(database, "c") is None
