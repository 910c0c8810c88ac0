"""Readiness looks at every task that the service cannot do without."""

from __future__ import annotations

import asyncio
from pathlib import Path

from service.settings import Settings
from service.wiring import build


async def test_a_stream_that_has_ended_makes_the_service_unready(tmp_path: Path) -> None:
    services = build(Settings(home=tmp_path, ray_address="127.0.0.1:1"))
    async with services:
        assert (await services.readiness()).ready
        task = services.stream._task
        assert task is not None
        task.cancel()
        await asyncio.wait([task])
        found = await services.readiness()
        assert not found.ready
        assert found.checks["stream"] == "it has ended; restart the service"
        assert found.checks["reconciler"] == "ok"
