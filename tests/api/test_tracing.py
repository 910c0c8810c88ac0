"""Traces reach a collector, under the templates of the routes, where one is configured."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from api.tracing import Tracing
from tests.api.live import LiveService


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Any]]]:
    """Its address, and the spans that came."""
    spans: list[Any] = []

    class Collect(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                spans.extend(span for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collect)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", spans
    server.shutdown()
    server.server_close()


def test_each_request_is_a_trace_named_by_its_route(
    start: Callable[..., LiveService], collector: tuple[str, list[Any]]
) -> None:
    address, spans = collector
    live = start(traces_to=address)
    job_id = live.submit()["id"]
    assert live.http.get("/healthz").status_code == 200
    assert live.job(job_id)["id"] == job_id
    live.stop()
    names = {span.name for span in spans}
    assert {"POST /v1/jobs", "GET /v1/jobs/{job_id}"} <= names
    assert not any("healthz" in name for name in names)
    traces = {span.trace_id for span in spans if span.name in ("POST /v1/jobs", "GET /v1/jobs/{job_id}")}
    assert len(traces) == 2


def test_nothing_is_traced_where_nobody_collects() -> None:
    assert Tracing(None, version="1").telemetry["tracing"] is False
