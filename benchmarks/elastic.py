"""Pauses when workers come, go and die: ours beside Ray Train elastic and torchrun elastic, in turns, on one machine.

Each round starts each system on two workers of the same model, lets it grow to three, shrink to two and lose a worker
by SIGKILL. Ours also says what it moved, and where the time went.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks import results
from benchmarks.elastic_systems import SYSTEMS, Figures
from benchmarks.rounds import order

EVENTS = ("grow", "shrink", "kill")
# (event, peer, ours at most this share of the peer's pause)
AIMS = (
    ("grow", "ray-train", 1 / 20),
    ("shrink", "ray-train", 1 / 20),
    ("kill", "ray-train", 1 / 15),
    ("grow", "torchrun", 1 / 20),
    ("shrink", "torchrun", 1 / 20),
    ("kill", "torchrun", 1 / 15),
)
Found = dict[str, dict[str, list[Figures]]]


def turn(name: str, console: Console, *, repeats: int) -> Iterator[tuple[str, Figures]]:
    """One start, and the events `repeats` times."""
    with tempfile.TemporaryDirectory(prefix="el-", ignore_cleanup_errors=True) as folder:
        system = SYSTEMS[name](Path(folder) / name)
        try:
            system.start()
            for _ in range(repeats):
                for event in EVENTS:
                    figures = getattr(system, event)()
                    redone = figures.get("redone_steps", 0)
                    console.print(
                        f"{name}: {event}: {figures['pause_s']:.2f} s, {redone:.0f} steps redone", style="dim"
                    )
                    yield event, figures
        finally:
            with suppress(OSError):
                system.stop()


def show(found: Found, console: Console) -> None:
    table = Table(
        "system", "event", "pause over a step (s)", "lowest", "highest", "steps redone", "moved (MB)", "events"
    )
    for name, events in found.items():
        for event, seen in events.items():
            pauses = [figures["pause_s"] for figures in seen]
            moved = [figures["moved_bytes"] / 1e6 for figures in seen if "moved_bytes" in figures]
            redone = median(figures.get("redone_steps", 0) for figures in seen)
            table.add_row(
                name,
                event,
                f"{median(pauses):.2f}",
                f"{min(pauses):.2f}",
                f"{max(pauses):.2f}",
                f"{redone:.0f}",
                f"{median(moved):.0f}" if moved else "-",
                str(len(seen)),
            )
    console.print(table)
    aims = Table("event", "peer", "ours to theirs", "at most", "")
    for event, peer, limit in AIMS:
        if found.get("ours", {}).get(event) and found.get(peer, {}).get(event):
            mine, theirs = (median(each["pause_s"] for each in found[who][event]) for who in ("ours", peer))
            aims.add_row(
                event, peer, f"{mine / theirs:.3f}", f"{limit:.3f}", "holds" if mine <= limit * theirs else "misses"
            )
    console.print(aims)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elastic", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=1, help="of the three events within one start")
    parser.add_argument("--systems", nargs="*", choices=list(SYSTEMS), default=list(SYSTEMS))
    settings, console = parser.parse_args(), Console(width=140)
    # What was started ends with us, also where a time limit ends us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    found: Found = {name: {event: [] for event in EVENTS} for name in settings.systems}
    for _, name in order(settings.systems, rounds=settings.rounds):
        for event, figures in turn(name, console, repeats=settings.repeats):
            found[name][event].append(figures)
    show(found, console)
    path = results.write("elastic", settings=vars(settings), figures=found)
    console.print(f"written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
