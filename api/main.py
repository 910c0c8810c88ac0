"""The application: routes, the border around them, and the services' life tied to its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import cast

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

from api import openapi, problems
from api.auth import KeyPresence, locked, refuse_open_address
from api.body_limit import BodyLimit
from api.browser_guard import BrowserGuard, is_loopback
from api.rate_limit import RateLimits
from api.routes import (
    checkpoints,
    cluster,
    health,
    internal,
    jobs,
    keys,
    logs,
    metrics,
    pages,
    plan,
    session,
    stream,
    webhooks,
)
from api.telemetry import Measured, Telemetry
from api.tracing import Tracing
from service.domain.call_rate import CallRate
from service.domain.errors import SetupError, Unavailable
from service.settings import Settings
from service.wiring import Services, build

ROUTERS = (jobs, checkpoints, metrics, logs, stream, plan, cluster, keys, webhooks, session, internal, health, pages)


def create_app(settings: Settings, *, wire: Callable[[Settings], Services] = build) -> FastAPI:
    """The whole service behind one ASGI application; its lifespan starts and stops the reconciler and all else."""
    tracing = Tracing(settings.traces_to, version=_version())
    app = FastAPI(
        title="Elastane",
        version=_version(),
        telemetry=cast(TelemetryConfig, tracing.telemetry),
        description="Elastic training jobs: submit, watch, resize. Errors are RFC 9457 problems.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        generate_unique_id_function=lambda route: route.name,
        lifespan=_lifespan(settings, wire),
    )
    app.state.settings = settings
    app.state.telemetry = Telemetry()
    app.state.key_presence = KeyPresence()
    app.state.rate_limits = RateLimits(rate=CallRate(per_minute=settings.rate_per_minute, burst=settings.rate_burst))
    app.state.stopping = asyncio.Event()
    app.state.setup_error = None
    app.state.tracing = tracing
    for module in ROUTERS:
        app.include_router(module.router)
    app.mount("/assets", pages.assets())
    problems.install(app)
    app.openapi = lambda: openapi.complete(app)  # type: ignore[method-assign]
    # The last added is the outermost.
    app.add_middleware(BodyLimit)
    app.add_middleware(
        BrowserGuard, loopback=is_loopback(settings.host), locked=locked(app), public_url=settings.public_url
    )
    app.add_middleware(Measured, telemetry=app.state.telemetry)
    return app


def _lifespan(
    settings: Settings, wire: Callable[[Settings], Services]
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        services = app.state.services = wire(settings)
        try:
            await services.open()
            await refuse_open_address(settings, services.keys)
            await services.start()
            yield
        except (SetupError, Unavailable) as error:
            # Whoever runs the server prints it as a sentence; a database that is away is no bug either.
            app.state.setup_error = error
            raise
        finally:
            app.state.stopping.set()
            await services.stop()
            await asyncio.to_thread(app.state.tracing.close)

    return life


def _version() -> str:
    try:
        return version("elastane")
    except PackageNotFoundError:
        return "0"
