"""Leases with fencing tokens, on the database's clock."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.database import tables
from service.domain.errors import LeaseLost

_T = tables.leases
_NOW = {
    "sqlite": sa.text("SELECT (julianday('now') - 2440587.5) * 86400.0"),
    "postgresql": sa.text("SELECT EXTRACT(EPOCH FROM clock_timestamp())::float8"),
}
_FIRST = sa.text(
    "INSERT INTO leases (name, holder, token, expires_at) VALUES (:name, '', 0, 0) ON CONFLICT (name) DO NOTHING"
)


class SqlLeases:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def take(self, name: str, *, holder: str, ttl_s: float) -> int | None:
        await self._connection.execute(_FIRST, {"name": name})
        query = sa.select(_T).where(_T.c.name == name).with_for_update()
        row = (await self._connection.execute(query)).mappings().one()
        # After the lock: a clock that was read before waiting for it would be old.
        now = float((await self._connection.execute(_NOW[self._connection.dialect.name])).scalar_one())
        if row["holder"] != holder and row["expires_at"] > now:
            return None
        token = row["token"] if row["holder"] == holder else row["token"] + 1
        values = {"holder": holder, "token": token, "expires_at": now + ttl_s}
        await self._connection.execute(_T.update().where(_T.c.name == name).values(**values))
        return int(token)

    async def check(self, name: str, token: int) -> None:
        query = sa.select(_T.c.token).where(_T.c.name == name).with_for_update()
        if (await self._connection.execute(query)).scalar_one_or_none() != token:
            raise LeaseLost(name=name, token=token)

    async def release(self, name: str, token: int) -> None:
        change = _T.update().where(_T.c.name == name, _T.c.token == token).values(holder="", expires_at=0.0)
        await self._connection.execute(change)
