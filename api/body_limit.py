"""No body larger than its path may have is ever held in memory."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import ProblemError, problem_response

BODY_LIMIT_BYTES = 1 << 20
# A heartbeat brings a backlog of facts after the service was away.
INTERNAL_LIMIT_BYTES = 32 << 20
DRAIN_BYTES = 64 << 20


class BodyLimit:
    """Refuses by Content-Length at once, and by counting what comes without one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = INTERNAL_LIMIT_BYTES if scope["path"].startswith("/internal/") else BODY_LIMIT_BYTES
        declared = Headers(scope=scope).get("content-length", "0")
        if not declared.isdigit() or int(declared) > limit:
            await _drained(receive)
            await problem_response(_too_large(limit), path=scope["path"])(scope, receive, send)
            return
        await self._app(scope, _counted(receive, limit), send)


async def _drained(receive: Receive) -> None:
    """Throws away what comes, up to a bound: a client that is still sending would see a reset, not the answer."""
    seen = 0
    while seen < DRAIN_BYTES:
        message = await receive()
        seen += len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            return


def _counted(receive: Receive, limit: int) -> Receive:
    """`receive` that raises, where the body is read, once more than `limit` came."""
    seen = 0

    async def counting() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise _too_large(limit)
        return message

    return counting


def _too_large(limit: int) -> ProblemError:
    detail = f"the body is larger than {limit} bytes; send less"
    return ProblemError(413, "too-large", "The body is too large", detail, headers={"connection": "close"})
