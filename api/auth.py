"""Who is calling, and may they? No key is asked for on loopback while none exists; else every call needs one."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from fastapi import FastAPI, Request

from api.browser_guard import SAFE_METHODS, is_loopback
from api.dependencies import services_of
from api.problems import ProblemError
from api.rate_limit import RateLimits
from service.domain.errors import AttemptTokenWrong, SetupError, Unauthenticated, Unavailable
from service.domain.key import ApiKey, Scope
from service.keys import Keys
from service.settings import Settings

COOKIE = "elastane_session"


@dataclass(slots=True)
class KeyPresence:
    """Whether any key was ever created, remembered for a second: it is asked at every call."""

    remembered_for_s: float = 1.0
    _known: bool = field(default=False, init=False)
    _until: float = field(default=0.0, init=False)

    async def any(self, keys: Keys) -> bool:
        if time.monotonic() >= self._until:
            self._known = await keys.exist()
            self._until = time.monotonic() + self.remembered_for_s
        return self._known

    def forget(self) -> None:
        """A key was made or revoked: the next call asks anew."""
        self._until = 0.0


def trusts_everyone(settings: Settings) -> bool:
    """Whether a caller without a key may come in while no key exists: a loopback address, or --insecure said aloud."""
    return settings.insecure or is_loopback(settings.host)


def locked(app: FastAPI) -> Callable[[], Awaitable[bool]]:
    """Whether keys are asked for. Not where nobody can tell: a database that is away opens nothing."""

    async def asked() -> bool:
        presence: KeyPresence = app.state.key_presence
        try:
            return await presence.any(app.state.services.keys)
        except Unavailable:
            return False

    return asked


async def refuse_open_address(settings: Settings, keys: Keys) -> None:
    """Raises SetupError where everybody on the network could come in."""
    if trusts_everyone(settings) or await keys.exist():
        return
    raise SetupError(
        f"host {settings.host} is reachable from other machines and no API key exists; create one on this "
        "machine (elastane keys create NAME --scope admin --local), or say --insecure to let everybody in"
    )


def requires(scope: Scope) -> Callable[[Request], Awaitable[None]]:
    """A dependency: the caller's key has this scope."""

    async def checked(request: Request) -> None:
        request.state.caller = None
        if await asks_for_keys(request):
            request.state.caller = await verified(request, presented(request), scope=scope)
            _limits(request).take(f"key:{request.state.caller.id}")
        elif not is_loopback(_address(request)):
            _limits(request).take(f"address:{_address(request)}")

    return checked


async def verified(request: Request, secret: str | None, *, scope: Scope = Scope.READ) -> ApiKey:
    """The key behind the secret. Raises Unauthenticated, Forbidden, TooManyRequests for who tries many."""
    try:
        return await services_of(request).keys.verify(secret, scope=scope)
    except Unauthenticated:
        if secret is not None:
            _limits(request).failed(_address(request))
        raise


def _limits(request: Request) -> RateLimits:
    limits: RateLimits = request.app.state.rate_limits
    return limits


def _address(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def caller_of(request: Request) -> ApiKey | None:
    """Whose key it was, after `requires`; None where none was asked for."""
    caller: ApiKey | None = request.state.caller
    return caller


async def may_submit(request: Request) -> bool:
    """Whether the caller, after `requires`, may also run code of the user's."""
    caller = caller_of(request)
    return caller is None or caller.allows(Scope.SUBMIT)


async def asks_for_keys(request: Request) -> bool:
    """Whether a caller without a key is refused here and now."""
    presence: KeyPresence = request.app.state.key_presence
    return not trusts_everyone(request.app.state.settings) or await presence.any(services_of(request).keys)


def presented(request: Request) -> str | None:
    """The secret that the caller shows: of the header, else of the cookie of a browser that signed in.

    A cookie is sent by the browser unasked. `BrowserGuard` has turned away every foreign Origin; a call that changes
    something and names no Origin at all is none of our pages.
    """
    secret = bearer(request) or request.cookies.get(COOKIE)
    by_cookie = secret is not None and bearer(request) is None
    if by_cookie and request.method not in SAFE_METHODS and "origin" not in request.headers:
        raise ProblemError(
            403, "wrong-origin", "Not allowed from there", "a session acts with an Origin; others send a key"
        )
    return secret


def bearer(request: Request) -> str | None:
    """The secret of `Authorization: Bearer ...`, where one is sent."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" and secret.strip() else None


async def attempt_token(request: Request) -> str:
    """The token that an attempt's own calls carry; what it is good for, the service knows."""
    token = bearer(request)
    if token is None:
        raise AttemptTokenWrong(str(request.path_params.get("attempt_id", "")))
    return token
