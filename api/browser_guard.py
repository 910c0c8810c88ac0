"""What a browser may do to this service on behalf of another site: nothing.

On loopback no key may be asked for, so the address is the only lock: a name that an attacker points at 127.0.0.1 (DNS
rebinding) is refused by its Host, a form or script of another site by its Origin or Sec-Fetch-Site.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import ProblemError, problem_response

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

SECURITY_HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def is_loopback(host: str) -> bool:
    """Whether this address or name means this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class BrowserGuard:
    """Checks Host (on loopback) and Origin; adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, *, loopback: bool) -> None:
        self._app = app
        self._loopback = loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope["method"], headers)
        if refusal is not None:
            await problem_response(refusal, path=scope["path"])(scope, receive, _with_headers(send))
            return
        await self._app(scope, receive, _with_headers(send))

    def _refusal(self, method: str, headers: Headers) -> ProblemError | None:
        host = headers.get("host", "")
        if self._loopback and not is_loopback(_name(host)):
            return _forbidden("wrong-host", f"Host {host[:100]!r}: this service is reached as 127.0.0.1 or localhost")
        if method in SAFE_METHODS:
            return None
        origin = headers.get("origin")
        if origin is not None and not _same(origin, host):
            return _forbidden(
                "wrong-origin", f"Origin {origin[:100]!r} is another site; only its own pages may act here"
            )
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return _forbidden("wrong-origin", "a browser sent this on behalf of another site")
        return None


def _same(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower() != ""
    except ValueError:
        return False


def _name(host: str) -> str:
    """`[::1]:8000` -> `::1`; empty for what is not a host."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _forbidden(code: str, detail: str) -> ProblemError:
    return ProblemError(403, code, "Not allowed from there", detail)


def _with_headers(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return guarded
