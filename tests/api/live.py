"""A live service without Ray, and a controller played by the test."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from api.cli.server import Server
from api.main import create_app
from service.adapters.local_process import LocalProcesses
from service.domain.attempt import Liveness
from service.domain.cluster import ClusterFacts, Node
from service.ports import LaunchOrder, Tool
from service.settings import Settings
from service.wiring import Services, build

Json = dict[str, Any]

TINY: Json = {"model": "gpt-tiny", "training": {"steps": 20, "batch_size": 4, "micro_batch_size": 2, "seq_len": 32}}
SLOTS = 1000


class NoRay:
    """There is none, and none is missed. As with a cluster, nothing stops when the service does."""

    embedded = False

    def begin(self) -> None: ...

    async def ensure(self) -> str:
        return "nowhere"

    def trouble(self) -> str | None:
        return None

    async def end(self) -> None: ...


class Room:
    """A cluster with room for everybody."""

    async def facts(self) -> ClusterFacts:
        node = Node(id="n", address="127.0.0.1", alive=True, slots=SLOTS)
        return ClusterFacts(nodes=(node,), slot_kind="cpu", max_slots=SLOTS, address="nowhere")


@dataclass
class Ledger:
    """The launcher: writes down what it was told to launch; everything launched lives until it is ended."""

    orders: dict[str, LaunchOrder] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    tool: LocalProcesses = field(
        default_factory=lambda: LocalProcesses(python=sys.executable, home=Path("/nowhere"), environment={})
    )

    async def launch(self, order: LaunchOrder) -> None:
        self.orders.setdefault(order.attempt_id, order)

    async def run(self, tool: Tool, arguments: Sequence[str], *, timeout_s: float) -> Mapping[str, Any]:
        """For real: what it does needs no cluster."""
        return await self.tool.run(tool, arguments, timeout_s=timeout_s)

    async def liveness(self, attempt_id: str) -> Liveness:
        return Liveness.GONE if attempt_id in self.gone or attempt_id not in self.orders else Liveness.ALIVE

    async def end(self, attempt_id: str, *, force: bool) -> None:
        self.gone.add(attempt_id)

    async def erased(self, *, uri: str, job_id: str) -> bool:
        return True

    def latest(self, job_id: str) -> LaunchOrder | None:
        found = [order for order in list(self.orders.values()) if order.job_id == job_id]
        return max(found, key=lambda order: order.number, default=None)


class LiveService:
    """uvicorn in a thread, as `elastane serve` runs it; `stop` ends it as SIGTERM does."""

    def __init__(self, settings: Settings, launcher: Ledger | None = None) -> None:
        self.launcher = launcher or Ledger()
        self._listener = socket.create_server(("127.0.0.1", settings.port))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.settings = settings.model_copy(update={"port": self.port})
        self.http = httpx.Client(base_url=self.url, timeout=20.0, trust_env=False)
        self._server = Server(create_app(self.settings, wire=self._wire), self.settings, as_json=True)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        wait_until(lambda: self._server.started or not self._thread.is_alive())
        assert self._server.started, self._server.app.state.setup_error

    def _run(self) -> None:
        with contextlib.suppress(SystemExit):  # a start that failed; the constructor tells
            self._server.run(sockets=[self._listener])

    def _wire(self, settings: Settings) -> Services:
        services = build(settings)
        ray, room = NoRay(), Room()
        services.ray = ray
        services.attempts = dataclasses.replace(services.attempts, ray=ray)
        services.census = dataclasses.replace(services.census, ray=ray)
        services.cluster = dataclasses.replace(services.cluster, capacity=room)
        services.plans = dataclasses.replace(services.plans, capacity=room)
        services.jobs = dataclasses.replace(services.jobs, plans=services.plans)
        services.checkpoints = dataclasses.replace(services.checkpoints, launcher=self.launcher)
        services.reconciler = dataclasses.replace(
            services.reconciler, ray=ray, capacity=room, launcher=self.launcher, leaving=services.attempts.leaving
        )
        return services

    def stop(self) -> None:
        self.http.close()
        self._server.should_exit = True
        self._thread.join(40)
        self._listener.close()
        assert not self._thread.is_alive()

    # ---- what tests do again and again ---------------------------------------------------------------------------

    def submit(self, **over: Any) -> Json:
        answer = self.http.post("/v1/jobs", json={**TINY, **over})
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def job(self, job_id: str) -> Json:
        return dict(self.http.get(f"/v1/jobs/{job_id}").json())

    def puppet(self, job_id: str) -> Puppet:
        """The controller of this job, once the reconciler launched it."""
        wait_until(lambda: self.launcher.latest(job_id) is not None)
        order = self.launcher.latest(job_id)
        assert order is not None
        return Puppet(self.http, order, self.launcher)

    def running(self, **over: Any) -> tuple[str, Puppet]:
        """A job that trains, and its controller."""
        job_id = self.submit(**over)["id"]
        puppet = self.puppet(job_id)
        assert puppet.beat(step=1).status_code == 200
        return job_id, puppet


@dataclass
class Puppet:
    """A controller: fetches its brief, posts heartbeats with facts."""

    http: httpx.Client
    order: LaunchOrder
    launcher: Ledger
    said: int = 0
    step: int = 0

    @property
    def path(self) -> str:
        return f"/internal/v1/attempts/{self.order.attempt_id}"

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.order.token}"}

    def brief(self) -> httpx.Response:
        return self.http.get(self.path, headers=self.headers)

    def beat(self, *facts: Json, step: int | None = None, phase: str = "running", **over: Any) -> httpx.Response:
        self.step = self.step if step is None else step
        worker = {"worker_id": "w0", "rank": 0, "pid": 1, "node": "n", "device": "cpu", "state": "running"}
        body = {
            "job_id": self.order.job_id,
            "attempt_id": self.order.attempt_id,
            "phase": phase,
            "step": self.step,
            "generation": 1,
            "world_size": 1,
            "workers": [worker],
            "facts_from": self.said,
            "facts": list(facts),
            "at": now(),
            **over,
        }
        answer = self.http.post(f"{self.path}/heartbeat", json=body, headers=self.headers)
        if answer.status_code == 200:
            self.said += len(facts)
        return answer

    def end(self, result: str = "succeeded", **over: Any) -> httpx.Response:
        """The last word; the process is gone with it."""
        answer = self.beat(phase="ended", outcome={"result": result, **over}, workers=[], world_size=0)
        self.launcher.gone.add(self.order.attempt_id)
        return answer


def samples(name: str, values: dict[int, float], *, rank: int | None = None) -> Json:
    """A fact: values by step."""
    return {
        "samples": [
            {"name": name, "rank": rank, "step": step, "generation": 1, "value": value, "at": now()}
            for step, value in values.items()
        ]
    }


def event(kind: str, **payload: Any) -> Json:
    return {"event": {"kind": kind, "step": 1, "generation": 1, "at": now(), "payload": payload}}


def now() -> str:
    return datetime.now(UTC).isoformat()


def wait_until(holds: Callable[[], bool], *, timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, "what the test waits for did not happen"
        time.sleep(0.02)


def settings(home: Path, **over: Any) -> Settings:
    return Settings(home=home, tick_s=0.1, leave_timeout_s=0.0, **{"port": 0, **over})
