"""What the command prints: one JSON document for machines, tables and sentences for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from api.client import ApiError, Refused

Json = dict[str, Any]

WIDEST = 1000  # columns of a table

STYLES = {
    "running": "green",
    "succeeded": "bold green",
    "failed": "bold red",
    "cancelled": "dim",
    "queued": "yellow",
    "paused": "yellow",
}


def out() -> Console:
    """Standard output. Nothing that a service or a user wrote is read as markup."""
    return Console(markup=False, highlight=False, emoji=False, soft_wrap=True)


def err() -> Console:
    return Console(markup=False, highlight=False, emoji=False, soft_wrap=True, stderr=True)


def emit_json(document: object, *, compact: bool = False) -> None:
    sys.stdout.write(json.dumps(document, indent=None if compact else 2, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def say(sentence: str, style: str = "") -> None:
    out().print(Text(plain(sentence), style=style))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Never cut: an id that ends in an ellipsis cannot be copied. A narrow terminal wraps the line."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else plain(shown(cell)) for cell in row))
    console = Console(markup=False, highlight=False, emoji=False, width=WIDEST)
    with console.capture() as printed:
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in printed.get().splitlines())
    sys.stdout.flush()


def print_pairs(pairs: Mapping[str, object]) -> None:
    width = max(len(name) for name in pairs)
    for name, value in pairs.items():
        line = Text(f"{name:<{width}}  ", style="dim")
        line.append(value if isinstance(value, Text) else Text(plain(shown(value)), style="default"))
        out().print(line)


def print_error(error: ApiError, *, as_json: bool) -> None:
    """The problem as it came for machines; for people its title, then every field's problem and fix."""
    if as_json:
        emit_json(error.problem if isinstance(error, Refused) else {"title": "Unreachable", "detail": str(error)})
        return
    if not isinstance(error, Refused):
        err().print(Text(plain(str(error)), style="red"))
        return
    problem = error.problem
    err().print(Text(plain(str(problem.get("title", "Refused"))), style="bold red"))
    parts, detail = problem.get("errors") or (), str(problem.get("detail") or "")
    # Where the problems say all of it, once is enough.
    if detail and not (parts and all(str(part.get("problem")) in detail for part in parts)):
        err().print(plain(detail))
    for part in parts:
        err().print(Text(f"  {plain(str(part.get('field')))}: {plain(str(part.get('problem')))}"))
        if part.get("fix"):
            err().print(Text(f"    fix: {plain(str(part['fix']))}", style="cyan"))


def state_text(state: object) -> Text:
    return Text(plain(str(state)), style=STYLES.get(str(state), "cyan"))


def shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def plain(text: str) -> str:
    """Without control characters: a log line must not steer the reader's terminal."""
    return "".join(c if c in "\t\n" or (c.isprintable() or c == "\u00a0") else "\ufffd" for c in text)


def time_text(time: object) -> str:
    """2026-01-01T00:00:00.123Z -> 2026-01-01 00:00:00."""
    return str(time)[:19].replace("T", " ") if time else "-"


def size_text(size_bytes: object) -> str:
    """1234567 -> 1.18 MiB."""
    if not isinstance(size_bytes, int | float):
        return "-"
    size, units = float(size_bytes), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while abs(size) >= 1024 and len(units) > 1:
        size, _ = size / 1024, units.pop(0)
    return f"{size:.0f} B" if units[0] == "B" else f"{size:.2f} {units[0]}"


def workers_text(workers: object) -> str:
    """3/4 (1-4): actual of desired, and the bounds."""
    if not isinstance(workers, dict):
        return "-"
    return f"{shown(workers.get('actual'))}/{shown(workers.get('desired'))} ({workers.get('min')}-{workers.get('max')})"
