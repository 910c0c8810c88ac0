"""What a stream carries: a number that only grows, and what happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

NoticeKind = Literal["event", "sample", "state", "resync"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """kind `event`: data is the event; `state`: {state, reason, step, steps, workers}; `sample`: {samples: [...]};
    `resync`: the client was too far behind, it must load anew what it shows; `id` is where it goes on from."""

    id: int
    kind: NoticeKind
    job_id: str | None
    data: Mapping[str, Any]
