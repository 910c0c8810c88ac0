"""The commands about jobs: each is one call of the REST API and a way to print its answer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from api.cli.connection import AsJson, JobId, client_of, workers_argument
from api.cli.follow import event_line, follow
from api.cli.output import (
    emit_json,
    err,
    out,
    plain,
    print_pairs,
    print_table,
    say,
    shown,
    size_text,
    state_text,
    time_text,
    workers_text,
)
from api.cli.spec_file import load_spec
from api.client import ENDED

Json = dict[str, Any]

SpecFile = Annotated[Path, typer.Argument(metavar="SPEC.yaml", help="YAML or JSON; - reads standard input.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Sets a field: training.steps=20")
]


def submit(
    context: typer.Context,
    spec: SpecFile,
    set_: Settings = None,
    *,
    follow_: Annotated[
        bool, typer.Option("--follow", "-f", help="Show the job until it ends; exit 0 if it succeeded.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Validate and plan only.")] = False,
    idempotency_key: Annotated[str | None, typer.Option(help="The same key and spec never make a second job.")] = None,
    patience_s: Annotated[float, typer.Option("--patience", help="Seconds to wait for a silent service.")] = 300.0,
    as_json: AsJson = False,
) -> None:
    """Submit a job."""
    document = load_spec(spec, set_ or [])
    with client_of(context) as client:
        if dry_run:
            emit_json(client.dry_run(document)) if as_json else say(f"legal; {_recommended(client.dry_run(document))}")
            return
        job = client.submit(document, idempotency_key=idempotency_key)
        if follow_:
            err().print(f"{_named(job)}; Ctrl-C stops watching, not the job")
            job = follow(client, job["id"], console=err(), patience_s=patience_s)
    if as_json:
        emit_json(job)
    elif follow_:
        say(_ending(job), style="green" if job["state"] == "succeeded" else "red")
    else:
        say(f"{_named(job)} is {job['state']}; watch it: elastane logs -f {job['id']}")
    if follow_ and job["state"] != "succeeded":
        raise typer.Exit(1)


def jobs(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(help="Only jobs in this state.")] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs of this name.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 20,
    cursor: Annotated[str | None, typer.Option(help="Where the former page ended.")] = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    with client_of(context) as client:
        page = client.jobs(state=state, name=name, limit=limit, cursor=cursor)
    if as_json:
        return emit_json(page)
    rows = [_row(job) for job in page["items"]]
    print_table(("ID", "NAME", "STATE", "STEP", "WORKERS", "LOSS", "TOKENS/S", "CREATED (UTC)"), rows)
    if page.get("next_cursor"):
        say(f"more: elastane jobs --cursor {page['next_cursor']}", style="dim")
    return None


def show(context: typer.Context, job_id: JobId, as_json: AsJson = False) -> None:
    """Show one job: state, progress, workers, memory per rank, spec."""
    with client_of(context) as client:
        job = client.job(job_id)
    if as_json:
        return emit_json(job)
    spec = job.get("spec") or {}
    print_pairs(
        {
            "id": job["id"],
            "name": job["name"],
            "state": state_text(job["state"]),
            "reason": job.get("reason") or "-",
            "step": f"{job['step']} of {job['steps']}",
            "loss": job.get("loss"),
            "tokens/s": job.get("throughput_tokens_per_s"),
            "workers": workers_text(job["workers"]),
            "engine": f"{spec.get('engine')} stage {job.get('stage')}",
            "attempt": f"{job.get('attempt')}, generation {job.get('generation')}",
            "priority": job.get("priority"),
            "created": time_text(job.get("created_at")),
            "started": time_text(job.get("started_at")),
            "ended": time_text(job.get("ended_at")),
            "last heard": time_text(job.get("heartbeat_at")),
        }
    )
    return _print_memory((job.get("memory") or {}).get("per_rank") or [])


def events(
    context: typer.Context,
    job_id: JobId,
    after: Annotated[str | None, typer.Option(help="Only events after this cursor.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the timeline of a job."""
    with client_of(context) as client:
        page = client.events(job_id, after=after)
    if as_json:
        return emit_json(page)
    for event in page["items"]:
        out().print(event_line(event))
    return None


def logs(
    context: typer.Context,
    job_id: JobId,
    rank: Annotated[int | None, typer.Option(min=0, help="Only this rank.")] = None,
    follow_: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the log lines of a job; with --json one document per line."""
    after = None
    with client_of(context) as client:
        while True:
            ended = client.job(job_id)["state"] in ENDED
            page = client.logs(job_id, rank=rank, after=after)
            for line in page["items"]:
                _print_line(line, as_json=as_json)
            after = page.get("next_after", after)
            if not page["items"]:
                if ended or not follow_:
                    return
                time.sleep(0.5)


def scale(
    context: typer.Context,
    job_id: JobId,
    workers: Annotated[str, typer.Argument(metavar="N|MIN:MAX", help="A number of workers, or bounds.")],
    stage: Annotated[int | None, typer.Option(min=0, max=3, help="The stage it goes on at.")] = None,
    offload: Annotated[str | None, typer.Option(help="none, cpu or nvme: where its state goes.")] = None,
    as_json: AsJson = False,
) -> None:
    """Change how many workers a job has, while it trains."""
    with client_of(context) as client:
        job = client.scale(job_id, workers_argument(workers), stage=stage, offload=offload)
    _acted(job, as_json=as_json)


def priority(
    context: typer.Context,
    job_id: JobId,
    priority: Annotated[int, typer.Argument(min=0, max=100, help="Larger comes first.")],
    as_json: AsJson = False,
) -> None:
    """Change who comes first when there are not slots enough for all."""
    with client_of(context) as client:
        job = client.prioritise(job_id, priority)
    emit_json(job) if as_json else say(f"job {job['id']} is {job['state']}, priority {job['priority']}")


def explain(context: typer.Context, job_id: JobId, as_json: AsJson = False) -> None:
    """Say why a job waits, or has the workers it has."""
    with client_of(context) as client:
        found = client.explain(job_id)
    if as_json:
        return emit_json(found)
    for sentence in found["sentences"]:
        say(sentence)
    rows = [(each["job_id"], each["name"], each["priority"], each["slots"]) for each in found["ahead"]]
    return print_table(("HOLDS SLOTS OR COMES FIRST", "NAME", "PRIORITY", "SLOTS"), rows) if rows else None


def pause(context: typer.Context, job_id: JobId, as_json: AsJson = False) -> None:
    """Save a checkpoint and give the workers back."""
    with client_of(context) as client:
        _acted(client.pause(job_id), as_json=as_json)


def resume(context: typer.Context, job_id: JobId, as_json: AsJson = False) -> None:
    """Go on from the newest checkpoint."""
    with client_of(context) as client:
        _acted(client.resume(job_id), as_json=as_json)


def cancel(context: typer.Context, job_id: JobId, as_json: AsJson = False) -> None:
    """End a job for good."""
    with client_of(context) as client:
        _acted(client.cancel(job_id), as_json=as_json)


def _named(job: Json) -> str:
    return f"job {job['id']} ({job['name']})" if job.get("name") else f"job {job['id']}"


def _row(job: Json) -> tuple[object, ...]:
    progress = f"{job['step']}/{job['steps']}"
    figures = (workers_text(job["workers"]), job.get("loss"), job.get("throughput_tokens_per_s"))
    return (job["id"], job["name"], state_text(job["state"]), progress, *figures, time_text(job["created_at"]))


def _acted(job: Json, *, as_json: bool) -> None:
    if as_json:
        return emit_json(job)
    return say(f"job {job['id']} is {job['state']}, workers {workers_text(job['workers'])}")


def _ending(job: Json) -> str:
    loss = f", loss {job['loss']:.4f}" if job.get("loss") is not None else ""
    why = f": {job['reason']}" if job.get("reason") and job["state"] != "succeeded" else ""
    return f"job {job['id']} {job['state']} at step {job['step']} of {job['steps']}{loss}{why}"


def _recommended(answer: Json) -> str:
    return plain(shown((answer.get("plan") or {}).get("recommendation")))


def _print_line(line: Json, *, as_json: bool) -> None:
    if as_json:
        return emit_json(line, compact=True)
    rank = "group" if line.get("rank") is None else f"rank {line['rank']}"
    text = Text(f"{str(line.get('at', ''))[11:19]} {rank:<7} ", style="dim")
    style = {"error": "red", "warning": "yellow", "debug": "dim"}.get(str(line.get("level")), "default")
    return out().print(text.append(plain(str(line.get("text", ""))), style=style))


def _print_memory(per_rank: list[Json]) -> None:
    if not per_rank:
        return
    kinds = ["params", "grads", "optimizer", "activations_peak", "gathered_peak", "process", "predicted"]
    kinds += [tier for tier in ("host", "nvme") if any(row.get(f"{tier}_bytes") for row in per_rank)]
    rows = [[row.get("rank"), *(size_text(row.get(f"{kind}_bytes")) for kind in kinds)] for row in per_rank]
    planned = per_rank[0].get("predicted_by_kind_bytes") or {}
    if planned:
        rows.append(["plan of 0", *(size_text(planned.get(kind)) for kind in kinds)])
    say("")
    print_table(("RANK", *(kind.upper().replace("_", " ") for kind in kinds)), rows)
