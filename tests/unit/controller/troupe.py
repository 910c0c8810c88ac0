"""Workers and a service that do what a test says, around a real Controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from service.domain.spec import JobSpec
from service.domain.wire import Brief, LostAttempt, Orders
from service.domain.worker_memory import WorkerMemory
from workers.controller.controller import Controller
from workers.controller.group import Death, Hand, Haul
from workers.layout.interval import Interval
from workers.layout.layout import Piece
from workers.worker.messages import (
    Broken,
    Holding,
    Join,
    Joined,
    Left,
    Points,
    Ready,
    Report,
    Resumed,
    Stopped,
    StoreAddress,
)
from workers.worker.whereabouts import Doing, Where

NUMEL = 12


@dataclass
class FakeGroup:
    hands: dict[str, Hand] = field(default_factory=dict)
    haul: Haul = field(default_factory=Haul)
    told: list[tuple[str, str, tuple[Any, ...]]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    born: int = 0
    drained: dict[str, float | None] = field(default_factory=dict)
    wheres: dict[str, Where] = field(default_factory=dict)

    def __contains__(self, worker: str) -> bool:
        return worker in self.hands

    def __iter__(self) -> Any:
        return iter(list(self.hands.values()))

    def __len__(self) -> int:
        return len(self.hands)

    def __getitem__(self, worker: str) -> Hand:
        return self.hands[worker]

    def spawn(self) -> str:
        self.born += 1
        worker = f"w{self.born}"
        self.hands[worker] = Hand(id=worker, actor=None)
        return worker

    def end(self, worker: str) -> None:
        if self.hands.pop(worker, None):
            self.ended.append(worker)

    def end_all(self) -> None:
        for worker in list(self.hands):
            self.end(worker)

    def release_all(self) -> None:
        self.released = list(self.hands)
        self.hands.clear()

    def tell(self, worker: str, method: str, *args: Any) -> None:
        if worker in self.hands:
            self.told.append((worker, method, args))

    def where(self, workers: Sequence[str]) -> dict[str, Where | None]:
        return {worker: self.wheres.get(worker) for worker in workers}

    def draining(self) -> dict[str, float | None]:
        return {worker: left_s for worker, left_s in self.drained.items() if worker in self.hands}

    def obstacle(self) -> str:
        return "the cluster has no free slot with gpu: 1"

    def poll(self, wait_s: float) -> Haul:
        haul, self.haul = self.haul, Haul()
        for worker, report in haul.reports:
            if isinstance(report, Ready) and worker in self.hands:
                self.hands[worker].ready = report
                self.hands[worker].heard = True
        return haul


@dataclass
class FakeUplink:
    orders: Orders
    superseded: bool = False
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    checkpoints: list[Any] = field(default_factory=list)
    shown: Any = None

    def event(self, kind: str, **payload: Any) -> None:
        assert payload.get("message"), f"{kind} needs a sentence"
        self.events.append((kind, payload))

    def checkpoint(self, report: Any) -> None:
        self.checkpoints.append(report)

    def samples(self, samples: Any) -> None: ...

    def logs(self, lines: Any) -> None: ...

    def show(self, standing: Any) -> None:
        self.shown = standing

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]


class FakeMeetingPoint:
    def address(self) -> StoreAddress:
        return StoreAddress(host="nowhere", port=1)

    def keep_alive(self) -> None: ...


def spec_of(*, minimum: int = 1, steps: int = 100, **fields: Any) -> JobSpec:
    workers, training = {"min": minimum, "max": 8}, {"steps": steps}
    return JobSpec.model_validate({"model": "gpt-tiny", "workers": workers, "training": training, **fields})


class Troupe:
    """`stage` decides what a survivor holds: everything, or its even part."""

    def __init__(self, *, workers: int = 2, stage: int = 3, lost: LostAttempt | None = None, **fields: Any) -> None:
        spec = spec_of(stage=stage, **fields)
        memory = spec.resources.memory_gb
        brief = Brief(
            job_id="job",
            attempt_id="attempt",
            attempt_number=1,
            spec=spec,
            workers=workers,
            checkpoint_uri="",
            cache_folder="",
            log_folder="",
            ray_address="",
            namespace="",
            orphan_timeout_s=60.0,
            lost=lost,
            memory=None if memory is None else WorkerMemory(device_bytes=int(memory * 2**30)),
            has_disk=True,
        )
        self.stage = stage
        self.now = 0.0
        self.group = FakeGroup()
        self.uplink = FakeUplink(Orders(acknowledged=0, workers=workers))
        self.controller = Controller(
            brief,
            uplink=self.uplink,  # type: ignore[arg-type]
            group=self.group,  # type: ignore[arg-type]
            meeting_point=FakeMeetingPoint(),
            clock=lambda: self.now,
        )

    # ---- time ----------------------------------------------------------------------------------------------------

    def turn(self, *, after_s: float = 0.1) -> None:
        self.now += after_s
        self.controller._turn()

    def order(self, **changes: Any) -> None:
        self.uplink.orders = self.uplink.orders.model_copy(update=changes)

    @property
    def outcome(self) -> Any:
        return self.controller._outcome

    # ---- what workers do -----------------------------------------------------------------------------------------

    def report(self, worker: str, report: Report) -> None:
        self.group.haul.reports.append((worker, report))

    def die(self, worker: str) -> None:
        self.group.haul.deaths.append(Death(hand=self.group.hands.pop(worker), reason="SIGKILL"))

    def warm(self, *workers: str) -> None:
        for worker in workers or [hand.id for hand in self.group if hand.ready is None]:
            self.report(worker, Ready(pid=int(worker[1:]), node="n", device="cpu", warm_s=1.0))
        self.turn()

    def joins(self) -> dict[str, Join]:
        """The newest join that each living worker was told."""
        joins = {w: args[0] for w, method, args in self.group.told if method == "order" and isinstance(args[0], Join)}
        return {worker: join for worker, join in joins.items() if worker in self.group}

    def newest(self) -> Join:
        return max(self.joins().values(), key=lambda join: join.generation)

    def join(self, *, step: int = 0, source: Any = "start", pause_s: float | None = 0.5) -> Join:
        """Everybody of the newest generation joins, and does a first step."""
        join = self.newest()
        for worker in join.members:
            self.report(
                worker,
                Joined(generation=join.generation, step=step, source=source, form_s=0.1, move_s=0.1, moved_bytes=4),
            )
            self.report(worker, Resumed(generation=join.generation, step=step + 1, pause_s=pause_s, first_step_s=0.1))
        for worker in join.leavers:
            self.report(worker, Left(generation=join.generation))
        self.turn()
        return join

    def steps(self, step: int, *, step_s: float = 0.1) -> None:
        """Rank 0 tells of a step of the newest generation."""
        join = self.newest()
        values = {"loss": 1.0, "step_s": step_s}
        points = Points(generation=join.generation, step=step, at=datetime(2026, 1, 1, tzinfo=UTC), values=values)
        self.report(join.members[0], points)
        self.turn()

    def at(self, worker: str, doing: Doing, *, step: int) -> None:
        """Where that worker is, if it is asked."""
        place = f"forward (/home/me/{worker}.py:20)"
        self.group.wheres[worker] = Where(generation=self.newest().generation, step=step, doing=doing, place=place)

    def stop(self, *, step: int) -> None:
        join = self.newest()
        for worker in join.members:
            self.report(worker, Stopped(generation=join.generation, step=step))
        self.turn()

    def broken(self, worker: str, *, step: int, mirrored: tuple[Holding, ...] = ()) -> Broken:
        join = self.newest()
        interval = Interval(0, NUMEL)
        if self.stage > 0:
            size = NUMEL // len(join.members)
            rank = join.members.index(worker)
            interval = Interval(rank * size, (rank + 1) * size)
        holdings = (Holding(step=step, pieces=(Piece("t", interval),)), *mirrored)
        return Broken(generation=join.generation, step=step, error="reset", holdings=holdings, whole={"t": NUMEL})

    def told(self, method: str) -> list[tuple[str, tuple[Any, ...]]]:
        return [(worker, args) for worker, told, args in self.group.told if told == method]


def running(**given: Any) -> Troupe:
    """The first generation stands and has done a step."""
    troupe = Troupe(**given)
    troupe.turn()
    troupe.warm()
    troupe.join()
    return troupe
