"""The controller's line to the service: a thread that posts heartbeats and keeps the newest orders.

Training never waits for it. While the service is away facts pile up in the backlog and leave when it is back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import httpx

from service.domain.wire import (
    Brief,
    CheckpointReport,
    EventReport,
    Fact,
    Heartbeat,
    LogLine,
    Orders,
    Outcome,
    Phase,
    Sample,
    WorkerReport,
)
from workers.controller.backlog import Backlog

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
# Changes that come in a burst share a message.
SETTLE_S = 0.02
TIMEOUT = httpx.Timeout(10.0, connect=3.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What every heartbeat says, facts or none."""

    phase: Phase = "starting"
    step: int = 0
    generation: int = 0
    world_size: int = 0
    workers: tuple[WorkerReport, ...] = ()


class Superseded(Exception):
    """The service gave this job to another attempt, or ended it: stop the workers and leave."""


class Transport(Protocol):
    """Carries one heartbeat. Raises Superseded, or OSError where the service cannot be reached."""

    def post(self, heartbeat: Heartbeat) -> Orders: ...


class HttpTransport:
    def __init__(self, *, service_url: str, attempt_id: str, token: str) -> None:
        self._path = f"/internal/v1/attempts/{attempt_id}"
        self._client = httpx.Client(
            base_url=service_url, timeout=TIMEOUT, headers={"authorization": f"Bearer {token}"}, trust_env=False
        )

    def brief(self) -> Brief:
        return Brief.model_validate_json(self._send("GET", self._path, None))

    def post(self, heartbeat: Heartbeat) -> Orders:
        body = heartbeat.model_dump_json(exclude_none=True).encode()
        return Orders.model_validate_json(self._send("POST", f"{self._path}/heartbeat", body))

    def _send(self, method: str, path: str, body: bytes | None) -> bytes:
        headers = {"content-type": "application/json"}
        try:
            response = self._client.request(method, path, content=body, headers=headers)
        except httpx.HTTPError as error:
            raise ConnectionError(f"{method} {path}: {error!r}") from error
        if response.status_code in (409, 410):
            raise Superseded(f"{method} {path}: {response.status_code} {response.text[:300]}")
        if response.status_code != 200:
            raise ConnectionError(f"{method} {path}: {response.status_code} {response.text[:300]}")
        return response.content


class Uplink:
    """Thread-safe. `changed` is set whenever orders or `superseded` changed."""

    def __init__(self, brief: Brief, transport: Transport) -> None:
        self._brief = brief
        self._transport = transport
        self._lock = threading.Lock()
        self._backlog = Backlog()
        self._standing = Standing()
        self._outcome: Outcome | None = None
        self._urgent = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="elastane-uplink", daemon=True)
        self.orders = Orders(acknowledged=0, workers=brief.workers)
        self.superseded = False
        self.changed = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def show(self, standing: Standing) -> None:
        """What the next heartbeat says; a change of anything but the step leaves at once."""
        with self._lock:
            before, self._standing = self._standing, standing
        if _shape(before) != _shape(standing):
            self._urgent.set()

    def event(self, kind: str, *, step: int | None = None, generation: int | None = None, **payload: object) -> None:
        report = EventReport(kind=kind, step=step, generation=generation, at=datetime.now(UTC), payload=payload)
        with self._lock:
            self._backlog.add(Fact(event=report))
        self._urgent.set()

    def checkpoint(self, report: CheckpointReport) -> None:
        with self._lock:
            self._backlog.add(Fact(checkpoint=report))
        self._urgent.set()

    def samples(self, samples: Sequence[Sample]) -> None:
        with self._lock:
            self._backlog.add_samples(tuple(samples))

    def logs(self, lines: Sequence[LogLine]) -> None:
        with self._lock:
            self._backlog.add_logs(tuple(lines))

    def end(self, outcome: Outcome, *, within_s: float) -> bool:
        """Deliver everything, the outcome last; False where the service did not answer in time."""
        with self._lock:
            self._outcome = outcome
            self._standing = Standing(phase="ended", step=self._standing.step, generation=self._standing.generation)
        self._urgent.set()
        return self._ended.wait(within_s)

    def _run(self) -> None:
        while not self._ended.is_set():
            self._urgent.wait(HEARTBEAT_S)
            if self._urgent.is_set():
                time.sleep(SETTLE_S)
            self._urgent.clear()
            self._exchange()

    def _exchange(self) -> None:
        """Post until nothing waits; what cannot be posted waits for the next beat."""
        while not self._ended.is_set():
            heartbeat = self._heartbeat()
            try:
                orders = self._transport.post(heartbeat)
            except Superseded as reason:
                log.warning("superseded: %s", reason)
                self.superseded = True
                self.changed.set()
                self._ended.set()
                return
            except (OSError, ValueError) as error:
                log.warning("the service cannot be reached, %d facts wait: %s", len(self._backlog), error)
                return
            if not self._apply(heartbeat, orders):
                return

    def _heartbeat(self) -> Heartbeat:
        with self._lock:
            facts = self._backlog.message()
            last = len(self._backlog) == len(facts)
            return Heartbeat(
                job_id=self._brief.job_id,
                attempt_id=self._brief.attempt_id,
                phase=self._standing.phase,
                step=self._standing.step,
                generation=self._standing.generation,
                world_size=self._standing.world_size,
                workers=self._standing.workers,
                facts_from=self._backlog.first,
                facts=facts,
                outcome=self._outcome if last else None,
                at=datetime.now(UTC),
            )

    def _apply(self, heartbeat: Heartbeat, orders: Orders) -> bool:
        """Whether more waits to be posted at once."""
        with self._lock:
            self._backlog.acknowledge(orders.acknowledged)
            remaining = len(self._backlog)
        if _wishes(orders) != _wishes(self.orders):
            self.changed.set()
        self.orders = orders
        if heartbeat.outcome is not None:
            self._ended.set()
            return False
        progressed = orders.acknowledged > heartbeat.facts_from
        # A few facts can wait for the next beat; more than that would pile up on a job of short steps.
        return progressed and remaining > (0 if self._outcome is not None else 3)


def _shape(standing: Standing) -> tuple[object, ...]:
    return standing.phase, standing.generation, standing.world_size, standing.workers


def _wishes(orders: Orders) -> tuple[object, ...]:
    return orders.workers, orders.action, orders.checkpoint_request
