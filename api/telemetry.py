"""What Prometheus reads. Labels are bounded: route templates and known words, never ids or what somebody sent."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.browser_guard import SAFE_METHODS
from service.census import Numbers

audit = logging.getLogger("elastane.audit")

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class EventCounts(Collector):
    """Counted where the events come in; here they are only shown."""

    def __init__(self) -> None:
        self.counts: Mapping[str, int] = {}

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily("elastane_events", "Events that this process was told of", labels=("kind",))
        for kind, count in self.counts.items():
            family.add_metric((kind,), count)
        yield family


class Telemetry:
    """The instruments of one application, in a registry of its own (two in one process do not collide)."""

    def __init__(self) -> None:
        self.registry, self._events = CollectorRegistry(), EventCounts()
        self._requests = Counter(
            "elastane_http_requests", "Answers sent", ("method", "route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "elastane_http_request_seconds", "Time to the end of the answer", ("route",), registry=self.registry
        )
        self._streams = Gauge("elastane_open_streams", "Server-sent event streams now open", registry=self.registry)
        self._jobs = Gauge("elastane_jobs", "Jobs by state", ("state",), registry=self.registry)
        self._attempts = Gauge("elastane_attempts", "Attempts that have not ended", registry=self.registry)
        self._workers = Gauge("elastane_workers", "Workers of all jobs", ("kind",), registry=self.registry)
        self._notice = Gauge("elastane_newest_notice", "Number of the newest notice", registry=self.registry)
        self._still = Gauge(
            "elastane_longest_without_step_seconds",
            "The longest that a job which should train has made no step",
            registry=self.registry,
        )
        self._prediction = Gauge(
            "elastane_memory_measured_over_predicted",
            "The largest over the ranks of all jobs; 0 where nothing is known",
            registry=self.registry,
        )
        self._free = Gauge("elastane_disk_free_bytes", "Free where files go", ("folder",), registry=self.registry)
        self._size = Gauge("elastane_disk_size_bytes", "Size of that disk", ("folder",), registry=self.registry)
        self.registry.register(self._events)

    def answered(self, *, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method if method in METHODS else "other", route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def stream_opened(self) -> None:
        self._streams.inc()

    def stream_closed(self) -> None:
        self._streams.dec()

    def exposition(self, numbers: Numbers) -> bytes:
        """The text that Prometheus scrapes, with the present counts."""
        for state, count in numbers.jobs.items():
            self._jobs.labels(str(state)).set(count)
        self._attempts.set(numbers.attempts)
        self._workers.labels("desired").set(numbers.workers_desired)
        self._workers.labels("actual").set(numbers.workers_actual)
        self._notice.set(numbers.newest_notice)
        self._still.set(numbers.still_s)
        self._prediction.set(numbers.measured_over_predicted)
        for folder, (free, size) in numbers.disks.items():
            self._free.labels(folder).set(free)
            self._size.labels(folder).set(size)
        self._events.counts = numbers.events
        return generate_latest(self.registry)


class Measured:
    """Counts and times every answer under the template of its route; who asked for a change is written down, before the
    answer leaves: nobody acts on a change that is not in the log yet."""

    def __init__(self, app: ASGIApp, *, telemetry: Telemetry) -> None:
        self._app = app
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = time.perf_counter()
        status: int | None = None

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _write_down(scope, status)
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            if status is None:
                status = 500
                _write_down(scope, status)
            route = getattr(scope.get("route"), "path", "unmatched")
            took_s = time.perf_counter() - began_s
            self._telemetry.answered(method=scope["method"], route=route, status=status, seconds=took_s)


def _write_down(scope: Scope, status: int) -> None:
    if scope["method"] in SAFE_METHODS or not scope["path"].startswith("/v1/"):
        return
    caller = scope.get("state", {}).get("caller")
    by = f"key {caller.id} ({caller.name})" if caller is not None else "nobody's key"
    audit.info("%s %.200r: %d, by %s", scope["method"], scope["path"], status, by)
