"""Rows of webhooks and of what they are still to be told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.database import tables
from service.domain.errors import WebhookNotFound
from service.domain.text import askable, storable
from service.domain.webhook import Delivery, Webhook

_T = tables.webhooks
_D = tables.deliveries


class SqlWebhooks:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, webhook: Webhook) -> None:
        values = {name: getattr(webhook, name) for name in _T.c.keys()}  # noqa: SIM118
        await self._connection.execute(_T.insert().values(**values))

    async def all(self) -> tuple[Webhook, ...]:
        found = await self._connection.execute(sa.select(_T).order_by(_T.c.id))
        return tuple(Webhook(**row) for row in found.mappings())

    async def remove(self, webhook_id: str) -> None:
        gone = 0
        if askable(webhook_id):
            gone = (await self._connection.execute(_T.delete().where(_T.c.id == webhook_id))).rowcount
        if not gone:
            raise WebhookNotFound(webhook_id)

    async def put(self, body: Mapping[str, Any], at: datetime) -> None:
        text, due = sa.literal(json.dumps(body, default=str)), sa.literal(at, tables.Instant)
        to_each = sa.select(_T.c.id, text, sa.literal(0), due)
        await self._connection.execute(_D.insert().from_select(["webhook_id", "body", "tries", "due_at"], to_each))

    async def is_due(self, now: datetime) -> bool:
        query = sa.select(_D.c.id).where(_D.c.due_at <= now).limit(1)
        return (await self._connection.execute(query)).first() is not None

    async def begin(self, now: datetime, *, until: datetime, limit: int) -> tuple[Delivery, ...]:
        query = sa.select(_D).where(_D.c.due_at <= now).order_by(_D.c.due_at, _D.c.id).limit(limit)
        found = (await self._connection.execute(query.with_for_update(skip_locked=True))).mappings().all()
        ids = [row["id"] for row in found]
        change = _D.update().where(_D.c.id.in_(ids)).values(due_at=until, tries=_D.c.tries + 1)
        await self._connection.execute(change)
        return tuple(
            Delivery(id=row["id"], webhook_id=row["webhook_id"], body=row["body"], tries=row["tries"] + 1)
            for row in found
        )

    async def settle(self, delivery: Delivery, *, error: str | None, again: datetime | None, at: datetime) -> None:
        own = _D.c.id == delivery.id
        await self._connection.execute(
            _D.delete().where(own) if again is None else _D.update().where(own).values(due_at=again)
        )
        noted: dict[str, Any] = {"last_error": storable(error or ""), "last_at": at}
        if error is None:
            noted["delivered"] = _T.c.delivered + 1
        elif again is None:
            noted["failed"] = _T.c.failed + 1
        await self._connection.execute(_T.update().where(_T.c.id == delivery.webhook_id).values(**noted))
