"""What Prometheus reads. Labels are bounded: route templates and known words, never ids or what somebody sent."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.census import Numbers

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Telemetry:
    """The instruments of one application, in a registry of its own (two in one process do not collide)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
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
        return generate_latest(self.registry)


class Measured:
    """Counts and times every answer under the template of its route."""

    def __init__(self, app: ASGIApp, *, telemetry: Telemetry) -> None:
        self._app = app
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s, status = time.perf_counter(), 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            took_s = time.perf_counter() - began_s
            self._telemetry.answered(method=scope["method"], route=route, status=status, seconds=took_s)
