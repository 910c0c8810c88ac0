"""The world outside the control plane as its ports see it: a clock, tokens, files, processes, a cluster, Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from service.domain.attempt import Liveness
from service.domain.cluster import ClusterFacts, Node, SlotKind
from service.domain.errors import ClusterUnavailable, ErasureFailed
from service.domain.hardware import memory_named
from service.ports import LaunchOrder, Tool


class FakeClock:
    def __init__(self) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def pass_s(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds


class FakeBus:
    """Never waits: whoever would wait for a call gets the next turn of the loop."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def wake(self, topic: str) -> None:
        self.calls.append(topic)

    async def wait(self, topic: str, *, timeout_s: float) -> None:
        await asyncio.sleep(0)


class FakeTokens:
    """Ids that sort by time and secrets that say their number."""

    def __init__(self) -> None:
        self._count = 0

    def new_id(self) -> str:
        self._count += 1
        return f"00000000-0000-7000-8000-{self._count:012d}"

    def secret(self) -> str:
        self._count += 1
        return f"secret-{self._count}"


class FakeFiles:
    """Files by pattern: each one of `present` holds `size` bytes. `lacking`: functions, and what is not there."""

    def __init__(self, *present: str, size: int = 2**20) -> None:
        self.present = set(present)
        self.size = size
        self.documents: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, tuple[int, int]] = {}
        self.lacking: dict[str, str] = {}
        self.removed: list[str] = []

    async def size_bytes(self, pattern: str) -> int | None:
        return self.size if pattern in self.present else None

    async def exists(self, pattern: str) -> bool:
        return pattern in self.present

    async def document(self, path: str) -> dict[str, Any] | None:
        return self.documents.get(path)

    async def token_range(self, pattern: str, dtype: str) -> tuple[int, int] | None:
        return self.tokens.get(pattern)

    async def lacks(self, function: str) -> str | None:
        return self.lacking.get(function)

    async def remove_folder(self, uri: str) -> None:
        self.removed.append(uri)


class FakeLauncher:
    """Processes by attempt id. `reachable` False: nothing can be known about them."""

    def __init__(self) -> None:
        self.orders: list[LaunchOrder] = []
        self.alive: set[str] = set()
        self.ended: list[tuple[str, bool]] = []
        self.reachable = True
        self.erasures: list[tuple[str, str]] = []
        self.erasure_fails = False
        self.runs: list[tuple[str, ...]] = []
        self.answer: dict[str, Any] = {}
        self.described: list[str] = []
        self.description: dict[str, Any] = {}

    async def run(
        self, tool: Tool, arguments: Sequence[str], *, timeout_s: float, users_code: bool = False
    ) -> Mapping[str, Any]:
        if tool is Tool.DESCRIBE:
            self.described.append(arguments[0])
            return self.description
        self.runs.append(tuple(arguments))
        return self.answer

    async def launch(self, order: LaunchOrder) -> None:
        if not self.reachable:
            raise ClusterUnavailable("told so by the test")
        if order.attempt_id not in self.alive:
            self.orders.append(order)
            self.alive.add(order.attempt_id)

    async def liveness(self, attempt_id: str) -> Liveness:
        if not self.reachable:
            return Liveness.UNKNOWN
        return Liveness.ALIVE if attempt_id in self.alive else Liveness.GONE

    async def end(self, attempt_id: str, *, force: bool) -> None:
        self.ended.append((attempt_id, force))
        if force:
            self.alive.discard(attempt_id)

    async def erased(self, *, uri: str, job_id: str) -> bool:
        """Done at the second call; `erasure_fails`: the first one is told to have failed."""
        if self.erasure_fails:
            self.erasure_fails = False
            raise ErasureFailed(uri=uri, cause="told so by the test")
        self.erasures.append((uri, job_id))
        return self.erasures.count((uri, job_id)) > 1


class FakeCapacity:
    def __init__(self, slots: int = 4, kind: SlotKind = "cpu") -> None:
        self.slots = slots
        self.max_slots = 0
        self.kind: SlotKind = kind
        self.accelerator: str | None = None
        self.reachable = True

    async def facts(self) -> ClusterFacts:
        if not self.reachable:
            raise ClusterUnavailable("told so by the test")
        node = Node(
            id="n0",
            address="127.0.0.1",
            alive=True,
            slots=self.slots,
            accelerator=self.accelerator,
            accelerator_memory_bytes=memory_named(self.accelerator),
        )
        most = max(self.slots, self.max_slots)
        return ClusterFacts(nodes=(node,), slot_kind=self.kind, max_slots=most, address="127.0.0.1:1")


class FakeRay:
    embedded = True

    def __init__(self) -> None:
        self.complaint: str | None = None
        self.ended = False

    def begin(self) -> None:
        return None

    async def ensure(self) -> str:
        return "127.0.0.1:1"

    def trouble(self) -> str | None:
        return self.complaint

    async def end(self) -> None:
        self.ended = True
