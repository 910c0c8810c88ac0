"""`make demo`: a job that grows and shrinks while it trains, and the figures it leaves. Through the REST API alone."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import yaml
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from api.client import ENDED, ApiError, ElastaneClient
from examples.local_service import ROOT, LocalService, ServiceFailed

Json = dict[str, Any]

SPEC = ROOT / "examples" / "first-job.yaml"
FIRST_WORKERS = 2
# (from this share of the steps on, this many workers)
RESIZES = ((0.2, 3), (0.6, 2))
# No step for so long means that something is wrong; the first step waits for imports of torch on every worker.
STALL_S = 120.0
POLL_S = 0.3
KINDS = ("params", "grads", "optimizer")


class DemoFailed(Exception):
    """A sentence for the person who watches."""


@dataclass(slots=True, kw_only=True)
class Watched:
    """What the demo saw: the newest state of the job, and each rank's memory at every number of workers."""

    job: Json
    memory: dict[int, list[Json]] = field(default_factory=dict)
    moved_at: float = field(default_factory=time.monotonic)

    def look(self, job: Json) -> None:
        if job["step"] != self.job["step"]:
            self.moved_at = time.monotonic()
        self.job = job
        actual = job["workers"]["actual"]
        ranks = [rank for rank in job["memory"]["per_rank"] if rank["rank"] < actual]
        if job["state"] == "running" and actual and len(ranks) == actual:
            self.memory[actual] = ranks


def spec(client: ElastaneClient) -> Json:
    """The sample job. On a machine with fewer GPUs than the demo's three workers it trains on the CPU."""
    document: Json = yaml.safe_load(SPEC.read_text())
    cluster = client.cluster()
    enough = cluster["slot_kind"] == "cpu" or cluster["slots"] >= max(workers for _, workers in RESIZES)
    return document if enough else {**document, "resources": {"gpu": 0, "cpu": 1}}


def train(client: ElastaneClient, console: Console) -> Watched:
    """Submit, resize at the planned steps, and follow to the end."""
    job = client.submit(spec(client))
    job = client.scale(job["id"], FIRST_WORKERS) | client.job(job["id"])
    watched = Watched(job=job)
    pending = [(int(share * job["steps"]), workers) for share, workers in RESIZES]
    with progress_bar(console) as progress:
        task = progress.add_task("waiting", total=job["steps"], facts="")
        while watched.job["state"] not in ENDED:
            time.sleep(POLL_S)
            watched.look(client.job(job["id"]))
            show(progress, task, watched.job)
            if pending and ready_for(pending[0], watched.job):
                _, workers = pending.pop(0)
                actual = watched.job["workers"]["actual"]
                progress.console.print(f"step {watched.job['step']}: scale {actual} -> {workers}")
                client.scale(job["id"], workers)
            refuse_a_stall(watched)
    return watched


def ready_for(resize: tuple[int, int], job: Json) -> bool:
    """Past the planned step, and settled: the last wish has come true."""
    settled = job["state"] == "running" and job["workers"]["actual"] == job["workers"]["desired"]
    return bool(settled and job["step"] >= resize[0])


def refuse_a_stall(watched: Watched) -> None:
    silent_s = time.monotonic() - watched.moved_at
    if silent_s > STALL_S:
        job = watched.job
        raise DemoFailed(
            f"no step for {silent_s:.0f} s; the job is {job['state']} at step {job['step']}: {job['reason']}"
        )


def progress_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<10}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[facts]}"),
        TimeElapsedColumn(),
        console=console,
    )


def show(progress: Progress, task: TaskID, job: Json) -> None:
    facts = f"step {job['step']:>3}/{job['steps']}  workers {job['workers']['actual']}"
    if job.get("loss") is not None:
        facts += f"  loss {job['loss']:.3f}"
    if job.get("throughput_tokens_per_s"):
        facts += f"  {job['throughput_tokens_per_s']:,.0f} tokens/s"
    progress.update(task, description=job["state"], completed=job["step"], facts=facts)


# ---- the summary ---------------------------------------------------------------------------------------------------


def points(client: ElastaneClient, job_id: str, name: str) -> list[float]:
    """The values of one of the group's series, in the order of steps."""
    series = client.metrics(job_id, names=name, points=10_000)["series"]
    return [
        point.get("value", point.get("last")) for one in series if one.get("rank") is None for point in one["points"]
    ]


def resizes(client: ElastaneClient, job_id: str) -> list[Json]:
    return [event["payload"] for event in client.events(job_id, limit=1000)["items"] if event["kind"] == "resized"]


def check(client: ElastaneClient, job: Json) -> None:
    """The demo shows what it says, or it fails."""
    if job["state"] != "succeeded":
        raise DemoFailed(f"the job {job['state']} at step {job['step']}: {job['reason']}")
    sizes = [(event.get("from"), event.get("to")) for event in resizes(client, job["id"])]
    wanted = [(FIRST_WORKERS, RESIZES[0][1]), (RESIZES[0][1], RESIZES[1][1])]
    if sizes[-2:] != wanted:
        raise DemoFailed(f"the job trained through the resizes {sizes}; {wanted} were asked for")


def mib(size_bytes: float | None) -> str:
    return "-" if size_bytes is None else f"{size_bytes / 2**20:.1f} MiB"


def predicted_bytes(client: ElastaneClient, document: Json, workers: int) -> int | None:
    """What `elastane plan` says of one rank's model state at the job's stage and this size."""
    choices = client.plan({**document, "workers": workers})["choices"]
    fitting = [c for c in choices if (c["stage"], c["offload"], c["workers"]) == (document["stage"], "none", workers)]
    return fitting[0]["states_bytes"] if fitting else None


def memory_rows(client: ElastaneClient, watched: Watched) -> Iterator[tuple[str, str]]:
    """One row for each number of workers: what every rank held, and what the plan says."""
    for workers, ranks in sorted(watched.memory.items()):
        held = " / ".join(mib(sum(rank[f"{kind}_bytes"] or 0 for kind in KINDS)) for rank in ranks)
        parts = ", ".join(f"{kind} {mib(ranks[0][f'{kind}_bytes'])}" for kind in KINDS)
        said = mib(predicted_bytes(client, watched.job["spec"], workers))
        yield f"bytes per rank, {workers} workers", f"{held} measured, {said} predicted\n({parts})"


def summary(client: ElastaneClient, watched: Watched, console: Console, dashboard: str) -> None:
    job = watched.job
    loss, speed = points(client, job["id"], "loss"), points(client, job["id"], "tokens_per_s")
    table = Table("what", "measured", title=f"{job['spec']['model']}, ZeRO-{job['stage']}, {job['steps']} steps")
    table.add_row("loss", f"{loss[0]:.3f} at the first step, {loss[-1]:.3f} at the last")
    table.add_row("tokens/s", f"{sorted(speed)[len(speed) // 2]:,.0f} (median)")
    for name, text in memory_rows(client, watched):
        table.add_row(name, text)
    for event in resizes(client, job["id"]):
        moved, redone = mib(event.get("moved_bytes")), event.get("redone_steps")
        table.add_row(
            f"{event['from']} -> {event['to']} workers",
            f"pause {event['pause_s']:.2f} s, {moved} moved, {redone} steps redone",
        )
    table.add_row("dashboard", dashboard)
    console.print(table)


# ---- start, stop, and everything that may go wrong -----------------------------------------------------------------


@contextmanager
def service(console: Console, *, keep: bool) -> Iterator[LocalService]:
    """A service with a home of its own; gone afterwards, unless it is to be kept and all went well."""
    local = LocalService(home=Path(tempfile.mkdtemp(prefix="elastane-demo-")))
    kept = False
    try:
        local.start()
        yield local
        kept = keep
    except (DemoFailed, ApiError):
        console.print(f"The end of the service's log:\n{local.tail()}", markup=False, highlight=False)
        raise
    finally:
        if not kept:
            local.stop()
            shutil.rmtree(local.home, ignore_errors=True)


def run(console: Console, *, keep: bool) -> None:
    console.print("Starting the service ...")
    with service(console, keep=keep) as local, ElastaneClient(local.url) as client:
        console.print(f"Dashboard: {local.url}/")
        watched = train(client, console)
        check(client, watched.job)
        summary(
            client, watched, console, f"{local.url}/" + ("" if keep else "  (stopped now; make demo KEEP=1 keeps it)")
        )
        if keep and local.process is not None:
            console.print(
                f"The service goes on at {local.url}/. To stop it: kill {local.process.pid}; its data: {local.home}"
            )


def interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the service running")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, interrupt)
    console = Console()
    try:
        run(console, keep=arguments.keep)
    except (DemoFailed, ServiceFailed, ApiError) as error:
        console.print(f"The demo failed: {error}", style="red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("Stopped; nothing is left running.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
