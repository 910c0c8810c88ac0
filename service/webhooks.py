"""Webhooks: made, listed, removed; and the task that delivers.

What is to be told is written in the transaction of the change itself. A delivery that a service has begun is due again
a minute later, whoever is there then: a service killed in between costs a repetition, nothing is lost.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import secrets
from dataclasses import dataclass, field
from datetime import timedelta

from service.domain.errors import Problem, RequestRefused, Unavailable
from service.domain.webhook import SECRET_PREFIX, Delivery, IpNetwork, Webhook, retry_at, signed, why_not
from service.ports import Clock, Database, Post, Tokens

log = logging.getLogger(__name__)

LIMIT = 50
POLL_S = 1.0
AT_ONCE = 16
BEGUN_FOR = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhooks:
    """networks: those beyond the public ones that may be told."""

    database: Database
    clock: Clock
    tokens: Tokens
    networks: tuple[IpNetwork, ...] = ()

    async def create(self, url: str) -> Webhook:
        """Its secret is in the answer. Raises RequestRefused."""
        if (wrong := why_not(url, also=self.networks)) is not None:
            fix = "give a public http or https URL, or allow its network with ELASTANE_WEBHOOK_NETWORKS"
            raise RequestRefused([Problem(field="url", value=url[:200], problem=wrong, fix=fix)])
        secret = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
        made = Webhook(id=self.tokens.new_id(), url=url, secret=secret, created_at=self.clock.now())
        async with self.database.write() as work:
            if len(await work.webhooks.all()) >= LIMIT:
                fix = "remove one that is no longer needed"
                raise RequestRefused([Problem(field="url", value=url[:200], problem=f"there are {LIMIT}", fix=fix)])
            await work.webhooks.add(made)
            await work.commit()
        return made

    async def list(self) -> tuple[Webhook, ...]:
        async with self.database.read() as work:
            return await work.webhooks.all()

    async def remove(self, webhook_id: str) -> None:
        """And what it was still to be told. Raises WebhookNotFound."""
        async with self.database.write() as work:
            await work.webhooks.remove(webhook_id)
            await work.commit()


@dataclass(slots=True, kw_only=True)
class Deliveries:
    database: Database
    clock: Clock
    post: Post
    _sending: set[asyncio.Task[None]] = field(default_factory=set)
    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="webhooks")

    async def stop(self) -> None:
        """What is being sent is sent again by whoever comes next."""
        tasks = [task for task in (self._task, *self._sending) if task is not None]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._task = None
        await self.post.close()

    async def _run(self) -> None:
        while True:
            try:
                await self.turn()
            except Exception as error:
                log.warning("webhooks: %s", error, exc_info=error)
            await asyncio.sleep(POLL_S)

    async def turn(self) -> None:
        """Begins what is due, as much as may go on at once."""
        room = AT_ONCE - len(self._sending)
        if room <= 0:
            return
        now = self.clock.now()
        async with self.database.read() as work:
            if not await work.webhooks.is_due(now):
                return
        async with self.database.write() as work:
            begun = await work.webhooks.begin(now, until=now + BEGUN_FOR, limit=room)
            known = {each.id: each for each in await work.webhooks.all()}
            await work.commit()
        for delivery in begun:
            task = asyncio.create_task(self._send(known[delivery.webhook_id], delivery))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def finish(self) -> None:
        """Returns when what was begun has been sent or has failed."""
        await asyncio.gather(*self._sending)

    async def _send(self, webhook: Webhook, delivery: Delivery) -> None:
        """A database that is away then costs a repetition."""
        headers = signed(delivery, webhook.secret, now=self.clock.now())
        error = await self.post.post(webhook.url, headers=headers, body=delivery.body.encode())
        now = self.clock.now()
        again = None if error is None else retry_at(delivery, now=now)
        try:
            async with self.database.write() as work:
                await work.webhooks.settle(delivery, error=error, again=again, at=now)
                await work.commit()
        except Unavailable as failure:
            log.warning("webhook %s: %s", webhook.id, failure)
