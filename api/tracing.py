"""Traces of requests, where somebody collects them: FastAPI's own spans, sent as OTLP over HTTP."""

from __future__ import annotations

import importlib
from collections.abc import MutableMapping
from typing import Any

from service.domain.errors import SetupError

# Probes ask every few seconds and tell nothing.
UNTRACED = frozenset({"/healthz", "/readyz", "/metrics"})


class Tracing:
    """`telemetry` is what FastAPI is made with. OTEL_EXPORTER_OTLP_HEADERS and the like are read by the exporter."""

    def __init__(self, collector: str | None, *, version: str) -> None:
        """collector: the base address of an OTLP collector over HTTP; None: nothing is traced. Raises SetupError."""
        self._provider = None if collector is None else _provider(collector, version)
        self.telemetry: dict[str, Any] = {
            "tracing": self._provider is not None,
            "tracer_provider": self._provider,
            # Prometheus has the numbers, and a log may hold what a user sent.
            "metrics": False,
            "logs": False,
            "auto_configure": False,
            "exclude": _untraced,
        }

    def close(self) -> None:
        """Sends what is still held, for a few seconds at most."""
        if self._provider is not None:
            self._provider.shutdown()


def _untraced(scope: MutableMapping[str, Any]) -> bool:
    return scope.get("path") in UNTRACED


def _provider(collector: str, version: str) -> Any:
    try:
        resources = importlib.import_module("opentelemetry.sdk.resources")
        sdk = importlib.import_module("opentelemetry.sdk.trace")
        export = importlib.import_module("opentelemetry.sdk.trace.export")
        otlp = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError as error:
        raise SetupError(
            f"ELASTANE_TRACES_TO is {collector}, but {error.name} is not installed: pip install 'elastane[otel]'"
        ) from error
    names = {"service.name": "elastane", "service.version": version}
    provider = sdk.TracerProvider(resource=resources.Resource.create(names))
    exporter = otlp.OTLPSpanExporter(endpoint=f"{collector.rstrip('/')}/v1/traces", timeout=5)
    provider.add_span_processor(export.BatchSpanProcessor(exporter))
    return provider
