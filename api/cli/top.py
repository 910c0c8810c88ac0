"""`elastane top`: slots and live jobs, drawn anew while you look."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from api.cli.connection import AsJson, client_of
from api.cli.output import emit_json, plain, print_table, say, shown, state_text, workers_text
from api.client import ElastaneClient, Unreachable

Json = dict[str, Any]

# In the order of the table.
LIVE = ("running", "resizing", "recovering", "starting", "pausing", "cancelling", "queued", "paused")
COLUMNS = ("ID", "NAME", "STATE", "PRIORITY", "WORKERS", "STEP", "LOSS", "TOKENS/S", "WHY")


def top(
    context: typer.Context,
    every_s: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between two looks.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Show slots and live jobs, drawn anew until Ctrl-C; once with --json or where no terminal reads."""
    with client_of(context) as client:
        seen = _look(client)
        if as_json:
            return emit_json(seen)
        if not sys.stdout.isatty():
            say(_head(seen))
            return print_table(COLUMNS, [_row(job) for job in seen["jobs"]])
        with Live(_page(seen), screen=True, auto_refresh=False) as live:
            # A terminal that is closed is none any more.
            while sys.stdout.isatty():
                time.sleep(every_s)
                try:
                    live.update(_page(_look(client)), refresh=True)
                except Unreachable as error:
                    live.update(Text(plain(str(error)), style="red"), refresh=True)


def _look(client: ElastaneClient) -> Json:
    jobs = [job for state in LIVE for job in client.jobs(state=state, limit=200)["items"]]
    return {"cluster": client.cluster(), "jobs": jobs}


def _head(seen: Json) -> str:
    cluster, counts = seen["cluster"], Counter(str(job["state"]) for job in seen["jobs"])
    words = ", ".join(f"{counts[state]} {state}" for state in LIVE if counts[state]) or "no live job"
    used = cluster["slots"] - cluster["slots_free"]
    return f"{used} of {cluster['slots']} {cluster['slot_kind']} slots in use, at most {cluster['max_slots']}; {words}"


def _page(seen: Json) -> Group:
    """The reason gives way first: an id that is cut cannot be copied."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), expand=True)
    for column in COLUMNS[:-1]:
        table.add_column(column, no_wrap=True, min_width=36 if column == "ID" else None)
    table.add_column(COLUMNS[-1], no_wrap=True, ratio=1)
    for job in seen["jobs"]:
        table.add_row(*(cell if isinstance(cell, Text) else plain(shown(cell)) for cell in _row(job)))
    return Group(Text(_head(seen), style="bold"), table)


def _row(job: Json) -> tuple[object, ...]:
    step = f"{job['step']}/{job['steps']}"
    figures = (workers_text(job["workers"]), step, job.get("loss"), job.get("throughput_tokens_per_s"))
    return (job["id"], job["name"], state_text(job["state"]), job["priority"], *figures, job.get("reason"))
