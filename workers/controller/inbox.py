"""What workers report, sorted: samples for the charts, answers to what a generation was asked, news of the group.

Answers of an older generation than the present one are dropped: a slow worker cannot speak for a group that is over.
A checkpoint that was published, or was not, and a crash stay facts whatever came after.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from service.domain.wire import LogLine, Sample
from workers.worker.messages import (
    Broken,
    CheckpointNews,
    Crashed,
    Finished,
    Joined,
    Left,
    Line,
    Notice,
    Points,
    Ready,
    Report,
    Resumed,
    Stopped,
)

News = Ready | Notice | Joined | Resumed | Stopped | Broken | Crashed | CheckpointNews | Finished | Left


@dataclass(slots=True, kw_only=True)
class Sorted:
    samples: list[Sample] = field(default_factory=list)
    lines: list[LogLine] = field(default_factory=list)
    news: list[tuple[str, News]] = field(default_factory=list)
    step: int = -1
    step_s: float | None = None


def sort(reports: Iterable[tuple[str, Report]], *, generation: int) -> Sorted:
    """`step`: the newest that the present generation has done, -1 where none is told; `step_s`: the slowest told."""
    found = Sorted()
    for worker, report in reports:
        if isinstance(report, Line):
            found.lines.append(LogLine(rank=report.rank, at=report.at, level=report.level, text=report.text))
        elif isinstance(report, Points):
            # Of a former generation too: they carry its number, and where a step was redone the newest one is shown.
            found.samples.extend(_samples(report))
            if report.generation == generation:
                found.step = max(found.step, report.step)
                found.step_s = max(found.step_s or 0.0, report.values.get("step_s", 0.0)) or None
        elif is_stale(report, generation=generation):
            continue
        else:
            found.news.append((worker, report))
    return found


def is_stale(report: Report, *, generation: int) -> bool:
    if isinstance(report, Ready | Notice | Line | Crashed | CheckpointNews):
        return False
    return report.generation != generation


def _samples(points: Points) -> Iterable[Sample]:
    for name, value in points.values.items():
        yield Sample(
            name=name,
            rank=points.rank,
            step=points.step,
            generation=points.generation,
            value=value,
            at=points.at,
        )
