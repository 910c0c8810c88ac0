"""A service in a thread: answers briefs and heartbeats by the wire's rules and remembers every fact once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from service.domain.arrangement import Arrangement
from service.domain.wire import Brief, Fact, Heartbeat, Orders, Outcome


class ServiceStub:
    """`orders` may be changed at any time; `away()` makes it answer 503 and forget nothing."""

    def __init__(self, brief: Brief) -> None:
        self.brief = brief
        self.workers = brief.workers
        self.action: Any = "run"
        self.checkpoint_request: str | None = None
        self.arrangement: Arrangement | None = None
        self.superseded = False
        self.is_away = False
        self.facts: list[Fact] = []
        self.beats: list[Heartbeat] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _answers(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def apply(self, beat: Heartbeat) -> Orders:
        with self._lock:
            self.beats.append(beat)
            assert beat.facts_from <= len(self.facts), "facts were lost"
            self.facts.extend(beat.facts[len(self.facts) - beat.facts_from :])
            return Orders(
                acknowledged=len(self.facts),
                workers=self.workers,
                action=self.action,
                checkpoint_request=self.checkpoint_request,
                arrangement=self.arrangement,
            )

    # ---- what was told -------------------------------------------------------------------------------------------

    @property
    def last(self) -> Heartbeat:
        return self.beats[-1]

    @property
    def outcome(self) -> Outcome | None:
        return self.beats[-1].outcome if self.beats else None

    def events(self, *kinds: str) -> list[Any]:
        return [fact.event for fact in list(self.facts) if fact.event and fact.event.kind in kinds]

    def curve(self, name: str = "loss") -> dict[int, float]:
        """step -> value of the newest generation."""
        found: dict[int, tuple[int, float]] = {}
        for fact in list(self.facts):
            for sample in fact.samples or ():
                if sample.name == name and sample.rank is None:
                    found[sample.step] = max(found.get(sample.step, (-1, 0.0)), (sample.generation, sample.value))
        return {step: value for step, (_, value) in sorted(found.items())}

    def pids(self) -> list[int]:
        return [worker.pid for worker in self.last.workers] if self.beats else []

    def wait(self, condition: Callable[[], object], *, within_s: float = 180.0, what: str = "") -> None:
        end = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > end:
                last = self.beats[-1].model_dump(exclude={"facts"}) if self.beats else None
                raise AssertionError(f"not within {within_s} s: {what}; last heartbeat: {last}; {self.log_tail()}")
            time.sleep(0.02)

    def log_tail(self) -> list[str]:
        return [line.text for fact in self.facts for line in fact.logs or ()][-10:]


def _answers(stub: ServiceStub) -> type[BaseHTTPRequestHandler]:
    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(503 if stub.is_away else 200, stub.brief.model_dump_json())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if stub.is_away:
                self._answer(503, "{}")
            elif stub.superseded:
                self._answer(409, '{"title": "superseded"}')
            else:
                self._answer(200, stub.apply(Heartbeat.model_validate_json(body)).model_dump_json())

        def _answer(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Answers
