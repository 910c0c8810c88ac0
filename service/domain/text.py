"""What may be sent to a database as text: Postgres refuses NUL, every driver refuses lone surrogates."""

from __future__ import annotations


def askable(text: str, *, limit: int = 100) -> bool:
    """Whether a row could have this key; where not, there is no such row and nothing need be asked."""
    return len(text) <= limit and text.isascii() and text.isprintable()


def storable(text: str) -> str:
    """The text without what no database stores, shown as an escape."""
    return text.replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode()
