"""Rows of API keys."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.database import tables
from service.domain.errors import KeyNotFound
from service.domain.key import ApiKey, parse_scopes
from service.domain.text import askable

_T = tables.api_keys
_PLAIN = ("id", "name", "hint", "created_at", "quota_slots", "last_used_at", "revoked_at")


class SqlKeys:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, key: ApiKey, secret_hash: str) -> None:
        values = {name: getattr(key, name) for name in _PLAIN}
        await self._connection.execute(
            _T.insert().values(**values, scopes=" ".join(key.scopes), secret_hash=secret_hash)
        )

    async def all(self) -> tuple[ApiKey, ...]:
        found = await self._connection.execute(sa.select(_T).order_by(_T.c.id))
        return tuple(_key(row) for row in found.mappings())

    async def by_hash(self, secret_hash: str) -> ApiKey | None:
        found = await self._connection.execute(sa.select(_T).where(_T.c.secret_hash == secret_hash))
        row = found.mappings().one_or_none()
        return None if row is None else _key(row)

    async def revoke(self, key_id: str, at: datetime) -> ApiKey:
        if not askable(key_id):
            raise KeyNotFound(key_id)
        change = _T.update().where(_T.c.id == key_id, _T.c.revoked_at.is_(None)).values(revoked_at=at)
        await self._connection.execute(change)
        return await self._one(key_id)

    async def limit(self, key_id: str, slots: int | None) -> ApiKey:
        if not askable(key_id):
            raise KeyNotFound(key_id)
        await self._connection.execute(_T.update().where(_T.c.id == key_id).values(quota_slots=slots))
        return await self._one(key_id)

    async def _one(self, key_id: str) -> ApiKey:
        found = await self._connection.execute(sa.select(_T).where(_T.c.id == key_id))
        row = found.mappings().one_or_none()
        if row is None:
            raise KeyNotFound(key_id)
        return _key(row)

    async def touch(self, key_id: str, at: datetime) -> None:
        await self._connection.execute(_T.update().where(_T.c.id == key_id).values(last_used_at=at))


def _key(row: sa.RowMapping) -> ApiKey:
    return ApiKey(**{name: row[name] for name in _PLAIN}, scopes=parse_scopes(row["scopes"].split()))
