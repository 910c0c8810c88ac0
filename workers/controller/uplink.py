"""The controller's line to the service: a thread that posts heartbeats and keeps the newest orders.

Training never waits for it. While the service is away facts pile up in the backlog and leave when it is back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

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
from workers.controller.backlog import MESSAGE_FACTS, Backlog
from workers.controller.transport import Refused, Superseded, Transport

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
# Changes that come in a burst share a message.
SETTLE_S = 0.02
# While nothing answers: so long until the next try, doubled each time up to the limit.
RETRY_S = 0.5
RETRY_LIMIT_S = 4.0
# A service that does not know this attempt may be one that is just being restored; after this long it is meant.
REFUSED_S = 60.0
# Statuses that speak of what the message holds, not of who sends it.
OF_THE_MESSAGE = (400, 413, 415, 422)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What every heartbeat says, facts or none."""

    phase: Phase = "starting"
    step: int = 0
    generation: int = 0
    world_size: int = 0
    workers: tuple[WorkerReport, ...] = ()
    note: str = ""


class Uplink:
    """Thread-safe."""

    def __init__(self, brief: Brief, transport: Transport, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._brief = brief
        self._transport = transport
        self._clock = clock
        self._lock = threading.Lock()
        self._backlog = Backlog()
        self._standing = Standing()
        self._outcome: Outcome | None = None
        self._urgent = threading.Event()
        self._closing = threading.Event()
        self._ended = threading.Event()
        self._most_facts = MESSAGE_FACTS
        self._retry_s = 0.0
        self._refused_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="elastane-uplink", daemon=True)
        self.orders = Orders(acknowledged=0, workers=brief.workers)
        self.superseded = False

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
        self._closing.set()
        return self._ended.wait(within_s)

    def _run(self) -> None:
        """The border of this thread: whatever happens, the next beat is tried."""
        while not self._ended.is_set():
            self._pause()
            try:
                self._exchange()
            except Exception:
                log.exception("a heartbeat failed in a way that nobody foresaw")
                self._failed()

    def _pause(self) -> None:
        """Until the next beat is due; while nothing answers, longer each time."""
        if self._retry_s:
            (self._ended if self._closing.is_set() else self._closing).wait(self._retry_s)
            return
        self._urgent.wait(HEARTBEAT_S)
        if self._urgent.is_set():
            time.sleep(SETTLE_S)
        self._urgent.clear()

    def _exchange(self) -> None:
        """Post until nothing waits; what cannot be posted waits for the next beat."""
        while not self._ended.is_set():
            heartbeat = self._heartbeat()
            try:
                orders = self._transport.post(heartbeat)
            except Superseded as reason:
                self._leave(str(reason))
                return
            except Refused as refusal:
                if not self._yield(refusal, heartbeat):
                    return
                continue
            except (OSError, ValueError) as error:
                log.warning("the service cannot be reached, %d facts wait: %s", len(self._backlog), error)
                self._failed()
                return
            self._retry_s, self._refused_since = 0.0, None
            self._most_facts = min(MESSAGE_FACTS, self._most_facts * 2)
            if not self._apply(heartbeat, orders):
                return

    def _yield(self, refusal: Refused, heartbeat: Heartbeat) -> bool:
        """Whether a smaller message is worth posting at once: facts are halved until the one refused stands alone."""
        if refusal.status in OF_THE_MESSAGE and heartbeat.facts:
            log.warning("%d facts from %d: %s", len(heartbeat.facts), heartbeat.facts_from, refusal)
            if len(heartbeat.facts) == 1:
                self._replace(heartbeat.facts[0], refusal)
            self._most_facts = max(1, len(heartbeat.facts) // 2)
            return True
        now = self._clock()
        self._refused_since = now if self._refused_since is None else self._refused_since
        log.error("%s", refusal)
        self._failed()
        if now - self._refused_since >= REFUSED_S:
            self._leave(f"{refusal}, for {now - self._refused_since:.0f} s")
        return False

    def _replace(self, fact: Fact, refusal: Refused) -> None:
        """The number stays, so that what comes after still arrives; the timeline says what is missing."""
        kind = next(iter(fact.model_dump(exclude_none=True)), "nothing")
        payload = {"message": f"The service took no fact with {kind}: {refusal}"[:500]}
        with self._lock:
            self._backlog.replace_first(
                Fact(event=EventReport(kind="fact_dropped", at=datetime.now(UTC), payload=payload))
            )

    def _leave(self, reason: str) -> None:
        log.warning("superseded: %s", reason)
        self.superseded = True
        self._ended.set()

    def _failed(self) -> None:
        self._retry_s = min(RETRY_LIMIT_S, self._retry_s * 2 or RETRY_S)

    def _heartbeat(self) -> Heartbeat:
        with self._lock:
            facts = self._backlog.message(self._most_facts)
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
                note=self._standing.note,
                at=datetime.now(UTC),
            )

    def _apply(self, heartbeat: Heartbeat, orders: Orders) -> bool:
        """Whether more waits to be posted at once."""
        with self._lock:
            self._backlog.acknowledge(orders.acknowledged)
            remaining = len(self._backlog)
        self.orders = orders
        if heartbeat.outcome is not None:
            self._ended.set()
            return False
        progressed = orders.acknowledged > heartbeat.facts_from
        # A few facts can wait for the next beat; more than that would pile up on a job of short steps.
        return progressed and remaining > (0 if self._outcome is not None else 3)


def _shape(standing: Standing) -> tuple[object, ...]:
    return standing.phase, standing.generation, standing.world_size, standing.workers, bool(standing.note)
