"""`elastane serve`, `elastane db upgrade`, `elastane keys --local`: the server rather than a client of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

from api.cli.keys_locally import LocalKeys
from api.cli.output import emit_json, err, say
from api.cli.protocol import ProblemProtocol
from api.main import create_app
from service.domain.errors import ElastaneError, SetupError
from service.settings import Settings
from service.wiring import upgrade_database

BACKLOG = 1024


def serve(options: dict[str, Any], *, as_json: bool) -> int:
    """Runs until SIGINT or SIGTERM; the exit status: 0 ended as told, 1 could not start, 2 wrong settings."""
    settings = _settings(options)
    if settings is None:
        return 2
    try:
        listener = _listener(settings)
    except OSError as error:
        return _failed(
            f"{settings.host}:{settings.port} cannot be listened on: {error.strerror or error}; choose --port"
        )
    # Workers are told the port: a free one must be known before anything starts.
    settings = settings.model_copy(update={"port": listener.getsockname()[1]})
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("httpx", "alembic", "uvicorn.error"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        app = create_app(settings)
    except SetupError as error:
        return _failed(error.detail)
    server = Server(app, settings, as_json=as_json)
    with contextlib.suppress(SystemExit):  # uvicorn's word for a lifespan that did not start
        server.run(sockets=[listener])
    listener.close()
    failure = server.app.state.setup_error
    if failure is not None:
        return _failed(failure.detail)
    return 0 if server.started else 1


class Server(uvicorn.Server):
    """uvicorn, told how to say where it is and how to leave: first the attempts, then the streams, then the port."""

    def __init__(self, app: FastAPI, settings: Settings, *, as_json: bool) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=ProblemProtocol,
                log_config=None,
                access_log=False,
                lifespan="on",
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=5,
            )
        )
        self.app = app
        self._settings = settings
        self._as_json = as_json
        # A failed start is told in one sentence, not in uvicorn's traceback.
        logging.getLogger("uvicorn.error").addFilter(lambda record: app.state.setup_error is None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            _announce(self._settings, as_json=self._as_json)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """The attempts can hear that they must leave only while the port is open."""
        services = self.app.state.services
        if not self.force_exit:
            leaving = asyncio.create_task(services.drain())
            while not leaving.done() and not self.force_exit:
                await asyncio.wait({leaving}, timeout=0.2)
            leaving.cancel()
        self.app.state.stopping.set()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal ends the service cleanly with status 0, a second one at once."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


def upgrade(options: dict[str, Any], *, as_json: bool) -> int:
    """Migrates the database that the settings name."""
    settings = _settings(options)
    if settings is None:
        return 2
    try:
        revision = upgrade_database(settings)
    except ElastaneError as error:
        return _failed(error.detail)
    emit_json({"revision": revision}) if as_json else say(f"the database is at revision {revision}")
    return 0


def local_keys() -> LocalKeys:
    """The keys in the database that the environment names. Wrong settings end the command with status 2."""
    settings = _settings({})
    if settings is None:
        sys.exit(2)
    return LocalKeys(settings)


def _settings(options: dict[str, Any]) -> Settings | None:
    try:
        return Settings(**options)
    except ValidationError as error:
        for part in error.errors():
            name = ".".join(str(piece) for piece in part["loc"])
            err().print(f"ELASTANE_{name.upper()} or --{name}: {part['msg']} (it is {part['input']!r})")
        return None


def _listener(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError:
        listener.close()
        raise
    listener.listen(BACKLOG)
    listener.set_inheritable(False)
    return listener


def _announce(settings: Settings, *, as_json: bool) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{settings.port}"
    if as_json:
        emit_json({"url": url, "home": str(settings.home)}, compact=True)
        return
    say(f"Elastane listens on {url} (dashboard; API at {url}/docs)")
    say(f"data: {settings.home if settings.database_url is None else f'{settings.home} and the configured database'}")
    say("Ctrl-C ends it; jobs that train save a checkpoint and go on at the next start")
    sys.stdout.flush()


def _failed(sentence: str) -> int:
    err().print(sentence, style="red")
    return 1
