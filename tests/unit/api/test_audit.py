"""Who asked for a change is in the log by the time that the answer leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api.telemetry import Measured, Telemetry


def lines_when_sent(method: str, caplog: pytest.LogCaptureFixture, *, fails: bool = False) -> list[list[str]]:
    """What the log says as each message of the answer is sent, and at the end."""
    seen: list[list[str]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if fails:
            raise RuntimeError("a fault of ours")
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def send(message: Any) -> None:
        seen.append(list(caplog.messages))

    scope = {"type": "http", "method": method, "path": "/v1/jobs/x/cancel"}
    with caplog.at_level("INFO", logger="elastane.audit"):
        try:
            asyncio.run(Measured(app, telemetry=Telemetry())(scope, None, send))  # type: ignore[arg-type]
        except RuntimeError:
            assert fails
    return [*seen, list(caplog.messages)]


def test_a_change_is_written_down_before_its_answer_leaves_and_once(caplog: pytest.LogCaptureFixture) -> None:
    line = ["POST '/v1/jobs/x/cancel': 202, by nobody's key"]
    assert lines_when_sent("POST", caplog) == [line, line, line]


def test_a_change_that_failed_is_written_down_and_a_read_is_not(caplog: pytest.LogCaptureFixture) -> None:
    assert lines_when_sent("GET", caplog) == [[], [], []]
    assert lines_when_sent("POST", caplog, fails=True) == [["POST '/v1/jobs/x/cancel': 500, by nobody's key"]]
