"""One page of a list, newest first, and the cursor of the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    """`next_cursor` None: this was the last."""

    items: tuple[Item, ...]
    next_cursor: str | None
