"""A rank's report as text: it crosses processes, and nothing of ours is pickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from workers.checkpoint.blocks import Checksum
from workers.checkpoint.writer import FileReport, WrittenPart
from workers.layout.interval import Interval

# What a rank sends that could not write, in place of a report.
REFUSAL = "error"


def to_text(report: FileReport) -> str:
    return json.dumps(asdict(report))


def refusal_text(reason: str) -> str:
    return json.dumps({REFUSAL: reason})


def from_text(text: str) -> FileReport | str:
    """The report, or the reason why there is none."""
    fields: Mapping[str, Any] = json.loads(text)
    if REFUSAL in fields:
        return str(fields[REFUSAL])
    return FileReport(
        file=fields["file"],
        rank=fields["rank"],
        world_size=fields["world_size"],
        checksum=Checksum(**{**fields["checksum"], "blocks": tuple(fields["checksum"]["blocks"])}),
        parts=tuple(_part(part) for part in fields["parts"]),
    )


def _part(fields: Mapping[str, Any]) -> WrittenPart:
    return WrittenPart(
        name=fields["name"],
        shape=tuple(fields["shape"]),
        dtype=fields["dtype"],
        interval=Interval(**fields["interval"]),
        key=fields["key"],
    )
