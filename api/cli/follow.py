"""Watching one job to its end: a live bar for people, and patience while the service restarts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from api.cli.output import plain, shown, size_text
from api.client import ENDED, ElastaneClient, Refused, Unreachable

Json = dict[str, Any]

POLL_S = 0.4
WIDEST = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look at the service saw: the job and its new events, or nothing for `silent_s` seconds."""

    job: Json | None
    events: tuple[Json, ...] = ()
    silent_s: float = 0.0


def looks(client: ElastaneClient, job_id: str, *, patience_s: float) -> Iterator[Look]:
    """One look per poll until the job ended; each event once, in order, whatever restarts in between."""
    after, heard_at = None, time.monotonic()
    while True:
        try:
            # The job first: when it has ended, the events read next are all there are.
            job = client.job(job_id)
            page = client.events(job_id, after=after)
        except (Unreachable, Refused) as error:
            silent_s = time.monotonic() - heard_at
            if silent_s > patience_s or (isinstance(error, Refused) and error.status < 500):
                raise
            yield Look(job=None, silent_s=silent_s)
        else:
            heard_at, after = time.monotonic(), page.get("next_after", after)
            yield Look(job=job, events=tuple(page["items"]))
            if job["state"] in ENDED and not page["items"]:
                return
            if job["state"] in ENDED:
                continue
        time.sleep(POLL_S)


def follow(client: ElastaneClient, job_id: str, *, console: Console, patience_s: float) -> Json:
    """The job as it ended. The bar and the timeline go to `console`."""
    last: Json = {}
    with _bar(console) as progress:
        task = progress.add_task("waiting", total=None, facts="")
        for look in looks(client, job_id, patience_s=patience_s):
            for event in look.events:
                progress.console.print(event_line(event))
            if look.job is None:
                progress.update(task, description=f"no answer for {look.silent_s:.0f} s; the job goes on, waiting")
            else:
                last = look.job
                _show(progress, task, last)
    return last


def event_line(event: Json) -> Text:
    """`12:00:01  step 120  resized  From 2 to 3 workers: ...`: what happened in the event's own sentence, or in its
    numbers where it has none."""
    line = Text(f"{str(event.get('at', ''))[11:19]}  ", style="dim")
    if event.get("step") is not None:
        line.append(f"step {event['step']}  ")
    line.append(plain(str(event.get("kind"))), style="bold")
    payload = event.get("payload") or {}
    facts = (f"{name.removesuffix('_bytes')} {_short(_fact(name, payload[name]))}" for name in payload)
    words = _short(str(event.get("message") or "")) or ", ".join(facts)
    return line.append("  " + plain(words)) if words else line


def _fact(name: str, value: object) -> str:
    return size_text(value) if name.endswith("_bytes") else shown(value)


def _short(text: str) -> str:
    """One line of it: a traceback is whole in `elastane events --json` and in the logs."""
    first = text.partition("\n")[0]
    return first if len(first) <= WIDEST else f"{first[:WIDEST]}..."


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=28),
        TextColumn("{task.fields[facts]}", markup=False),
        TimeRemainingColumn(compact=True),
        console=console,
        disable=not console.is_terminal,
    )


def _show(progress: Progress, task: TaskID, job: Json) -> None:
    step, steps = job.get("step") or 0, job.get("steps") or 0
    actual = (job.get("workers") or {}).get("actual", 0)
    facts = [f"{step}/{steps}", f"{actual} worker{'' if actual == 1 else 's'}"]
    if job.get("loss") is not None:
        facts.append(f"loss {job['loss']:.4f}")
    if job.get("throughput_tokens_per_s"):
        facts.append(f"{job['throughput_tokens_per_s']:,.0f} tokens/s")
    progress.update(
        task, description=str(job.get("state")), completed=step, total=steps or None, facts="  ".join(facts)
    )
