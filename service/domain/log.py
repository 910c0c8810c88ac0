"""A line that a worker, the controller or the user's code wrote."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

LINE_LIMIT_BYTES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """`id` grows with time; `rank` None: the controller."""

    id: int
    job_id: str
    attempt: int
    rank: int | None
    at: datetime
    level: Literal["debug", "info", "warning", "error"]
    text: str


def bounded(text: str, *, limit_bytes: int = LINE_LIMIT_BYTES) -> str:
    """The line, cut where it is longer than the limit, saying how much is missing."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit_bytes:
        return raw.decode().replace("\x00", "\\0")
    kept = raw[:limit_bytes].decode("utf-8", "ignore").replace("\x00", "\\0")
    return f"{kept} ... [{len(raw) - limit_bytes} more bytes cut]"
