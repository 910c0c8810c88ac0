"""The control plane over HTTP beside a bare insert (`service_http.py`), and as a cluster grows to 1,000 nodes:
allocation, a reconciler's tick, heartbeats, on SQLite.

Nodes of 8 slots, as many jobs as nodes, 16 workers each: half of them run and the other half waits. There is no worker
and no Ray: every launch is taken, every controller lives. Nobody is beside it; a tick comes each second.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import results, service_http
from service.domain.allocation import Demand, allocate, grant
from service.domain.attempt import Liveness
from service.domain.cluster import ClusterFacts, Node
from service.domain.wire import Fact, Heartbeat, Sample, WorkerReport
from service.ports import LaunchOrder
from service.settings import Settings
from service.wiring import Services, build

SLOTS_EACH = 8
WORKERS = 16
SPEC: dict[str, Any] = {"model": "gpt-tiny", "workers": WORKERS}
SAMPLES = 12  # of one heartbeat: what a group and its ranks say of a step
BEATS = 100


@dataclass
class Cluster:
    """The ports `Capacity` and `Launcher` of so many nodes, on which everything goes well."""

    nodes: int
    orders: list[LaunchOrder] = field(default_factory=list)

    async def facts(self) -> ClusterFacts:
        nodes = tuple(Node(id=str(at), address=str(at), alive=True, slots=SLOTS_EACH) for at in range(self.nodes))
        return ClusterFacts(nodes=nodes, slot_kind="gpu", max_slots=self.nodes * SLOTS_EACH, address="nowhere")

    async def launch(self, order: LaunchOrder) -> None:
        self.orders.append(order)

    async def liveness(self, attempt_id: str) -> Liveness:
        return Liveness.ALIVE


def allocation_s(nodes: int) -> float:
    """Jobs that all may grow: the longest way to share the slots out."""
    jobs = [
        Demand(job_id=f"{at:05d}", priority=at % 101, order=f"{at:05d}", min=2, max=2 * WORKERS, slots_each=1)
        for at in range(nodes)
    ]
    slots, began = nodes * SLOTS_EACH, time.perf_counter()
    grant(jobs, allocate(jobs, slots=slots), slots=slots)
    return time.perf_counter() - began


async def figures(nodes: int, home: Path) -> dict[str, float]:
    settings = Settings(home=home, ray_address="http://nowhere", max_slots=nodes * SLOTS_EACH, slot_kind="gpu")
    cluster, services = Cluster(nodes), build(settings)
    services.reconciler = replace(services.reconciler, capacity=cluster, launcher=cluster)  # type: ignore[arg-type]
    await services.open()
    submit_s = await _median_s([lambda: services.jobs.submit(SPEC) for _ in range(nodes)])
    starting_s = await _until_all_started(services, cluster)
    beats = [_beat(order, step) for step in range(1 + BEATS // max(1, len(cluster.orders))) for order in cluster.orders]
    heartbeat_s = await _median_s([_told(services, cluster, beat) for beat in beats[: len(cluster.orders) + BEATS]])
    tick_s = await _median_s([services.reconciler.tick] * 3)
    census_s = await _median_s([services.census.read] * 3)
    await services.stop()
    return {
        "jobs": nodes,
        "running": len(cluster.orders),
        "allocation_s": allocation_s(nodes),
        "submit_s": submit_s,
        "starting_s": starting_s,
        "tick_s": tick_s,
        "heartbeat_s": heartbeat_s,
        "samples_per_s": SAMPLES / heartbeat_s,
        "scrape_s": census_s,
    }


async def _until_all_started(services: Services, cluster: Cluster) -> float:
    """A tick launches for a few seconds at most: as many of them as it takes, and one that launches nothing."""
    began, before = time.perf_counter(), -1
    while before != (before := len(cluster.orders)):
        await services.reconciler.tick()
    return time.perf_counter() - began


def _told(services: Services, cluster: Cluster, beat: Heartbeat) -> Callable[[], Awaitable[Any]]:
    token = next(order.token for order in cluster.orders if order.attempt_id == beat.attempt_id)
    return lambda: services.attempts.heartbeat(beat.attempt_id, token, beat)


def _beat(order: LaunchOrder, step: int) -> Heartbeat:
    now = datetime.now(UTC)
    samples = tuple(Sample(name=f"s{at}", step=step, generation=1, value=1.0, at=now) for at in range(SAMPLES))
    crew = tuple(
        WorkerReport(worker_id=f"w{rank}", rank=rank, pid=rank, node="n", device="cuda:0", state="running")
        for rank in range(WORKERS)
    )
    return Heartbeat(
        job_id=order.job_id,
        attempt_id=order.attempt_id,
        phase="running",
        step=step,
        generation=1,
        world_size=WORKERS,
        workers=crew,
        facts_from=step,
        facts=(Fact(samples=samples),),
        at=now,
    )


async def _median_s(calls: list[Callable[[], Awaitable[Any]]]) -> float:
    taken = []
    for call in calls:
        began = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control_plane")
    parser.add_argument("--nodes", type=int, nargs="*", default=[10, 100, 1000])
    parser.add_argument("--http", action="store_true", help="only over HTTP, beside a bare insert")
    asked = parser.parse_args()
    console, sizes = Console(), [] if asked.http else asked.nodes
    over_http = service_http.figures()
    console.print_json(data=over_http)
    found = _as_it_grows(sizes)
    if found:
        table = Table("nodes", *next(iter(found.values())), title="The control plane, seconds")
        for nodes, row in found.items():
            table.add_row(nodes, *(f"{value:.4g}" for value in row.values()))
        console.print(table)
    settings = {"workers_each": WORKERS, "samples": SAMPLES}
    path = results.write("control_plane", settings=settings, figures={"http": over_http, "nodes": found})
    console.print(f"written to {path}")


def _as_it_grows(sizes: list[int]) -> dict[str, dict[str, float]]:
    found = {}
    for nodes in sizes:
        with tempfile.TemporaryDirectory() as home:
            found[str(nodes)] = asyncio.run(figures(nodes, Path(home)))
    return found


if __name__ == "__main__":
    main()
