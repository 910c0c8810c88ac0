"""The webhooks of `memory_database.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from service.domain.errors import WebhookNotFound
from service.domain.webhook import Delivery, Webhook

if TYPE_CHECKING:
    from tests.fakes.memory_database import Shelves


class Webhooks:
    def __init__(self, shelves: Shelves) -> None:
        self.shelves = shelves

    async def add(self, webhook: Webhook) -> None:
        self.shelves.webhooks[webhook.id] = webhook

    async def all(self) -> tuple[Webhook, ...]:
        return tuple(webhook for _, webhook in sorted(self.shelves.webhooks.items()))

    async def remove(self, webhook_id: str) -> None:
        if self.shelves.webhooks.pop(webhook_id, None) is None:
            raise WebhookNotFound(webhook_id)
        kept = {key: row for key, row in self.shelves.deliveries.items() if row[0].webhook_id != webhook_id}
        self.shelves.deliveries = kept

    async def put(self, body: Mapping[str, Any], at: datetime) -> None:
        for webhook_id in self.shelves.webhooks:
            number = self.shelves.next("delivery")
            text = json.dumps(body, default=str)
            self.shelves.deliveries[number] = Delivery(id=number, webhook_id=webhook_id, body=text, tries=0), at

    async def is_due(self, now: datetime) -> bool:
        return any(due_at <= now for _, due_at in self.shelves.deliveries.values())

    async def begin(self, now: datetime, *, until: datetime, limit: int) -> tuple[Delivery, ...]:
        due = sorted((due_at, key) for key, (_, due_at) in self.shelves.deliveries.items() if due_at <= now)
        begun = []
        for _, key in due[:limit]:
            delivery = self.shelves.deliveries[key][0]
            begun.append(replace(delivery, tries=delivery.tries + 1))
            self.shelves.deliveries[key] = begun[-1], until
        return tuple(begun)

    async def settle(self, delivery: Delivery, *, error: str | None, again: datetime | None, at: datetime) -> None:
        if again is None:
            self.shelves.deliveries.pop(delivery.id, None)
        else:
            self.shelves.deliveries[delivery.id] = delivery, again
        known = self.shelves.webhooks[delivery.webhook_id]
        self.shelves.webhooks[known.id] = replace(
            known,
            delivered=known.delivered + (error is None),
            failed=known.failed + (error is not None and again is None),
            last_error=error or "",
            last_at=at,
        )
