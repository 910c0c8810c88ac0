"""Text on its way out: times in one form, and what a database takes (no NUL, no lone surrogates)."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

TEXT_LIMIT = 8192
ITEMS_LIMIT = 200
DEPTH_LIMIT = 6


def rfc3339(at: datetime) -> str:
    """2026-01-31T12:00:00.5Z: the one form of a time that leaves the house."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def counted(number: int, noun: str) -> str:
    """1 worker, 2 workers."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def askable(text: str, *, limit: int = 100) -> bool:
    """Whether a row could have this key; where not, there is no such row and nothing need be asked."""
    return len(text) <= limit and text.isascii() and text.isprintable()


def storable(text: str) -> str:
    """The text without what no database stores, shown as an escape."""
    return text.replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode()


def plain(value: object, *, depth: int = DEPTH_LIMIT) -> Any:
    """The value as JSON can say it and a timeline can carry it: no NaN, nothing endless, no strange type."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)[:100]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict) and depth:
        return {str(key)[:100]: plain(inner, depth=depth - 1) for key, inner in list(value.items())[:ITEMS_LIMIT]}
    if isinstance(value, list | tuple) and depth:
        return [plain(inner, depth=depth - 1) for inner in value[:ITEMS_LIMIT]]
    text = value if isinstance(value, str) else repr(value)
    return (
        text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT]} ... [{len(text) - TEXT_LIMIT} more characters cut]"
    )
