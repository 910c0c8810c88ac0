"""What a browser may do to this service on behalf of another site: nothing.

Where no key is asked for, the address is the only lock: a name that an attacker points at it (DNS rebinding) is refused
by its Host, a form or script of another site by its Origin or Sec-Fetch-Site.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
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


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class BrowserGuard:
    """Checks Host and Origin; adds the security headers to every answer.

    On loopback only this machine's names are answered. Elsewhere any name once keys are asked for (`locked`); until
    then (--insecure) what an attacker cannot point at this machine: an address, localhost, the host of `public_url`.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        loopback: bool,
        locked: Callable[[], Awaitable[bool]],
        public_url: str | None = None,
    ) -> None:
        self._app = app
        self._loopback = loopback
        self._locked = locked
        self._public_name = urlsplit(public_url or "").hostname

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = await self._wrong_host(headers) or self._refusal(scope["method"], headers)
        if refusal is not None:
            await problem_response(refusal, path=scope["path"])(scope, receive, _with_headers(send))
            return
        await self._app(scope, receive, _with_headers(send))

    async def _wrong_host(self, headers: Headers) -> ProblemError | None:
        host = headers.get("host", "")
        name = _name(host)
        if is_loopback(name):
            return None
        if self._loopback:
            return _forbidden("wrong-host", f"Host {host[:100]!r}: this service is reached as 127.0.0.1 or localhost")
        if _is_address(name) or name == self._public_name or await self._locked():
            return None
        fix = "reach it by its address, name this host in ELASTANE_PUBLIC_URL, or create a key"
        return _forbidden("wrong-host", f"Host {host[:100]!r} may be anybody's while no key is asked for: {fix}")

    def _refusal(self, method: str, headers: Headers) -> ProblemError | None:
        host = headers.get("host", "")
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
