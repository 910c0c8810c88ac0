"""Wake-up calls inside this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict


class LocalBus:
    """One waiter per topic: a call that comes while nobody waits is kept, further ones melt into it."""

    def __init__(self) -> None:
        self._topics: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def wake(self, topic: str) -> None:
        self._topics[topic].set()

    async def wait(self, topic: str, *, timeout_s: float) -> None:
        called = self._topics[topic]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await called.wait()
        called.clear()
