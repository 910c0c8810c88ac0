"""What one rank holds and what it has moved, in figures."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from dataclasses import dataclass, field

from workers.optimizers.kinds import StateKind

__all__ = ["Collective", "Footprint", "Meter", "StateKind", "TensorMeta", "Traffic"]

# Collectives remembered: some steps of a small model, a good part of one of a large model.
RECENT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMeta:
    """A global tensor of the model: `dtype` is torch's name without the prefix ("float32"). kept: the kinds of state it
    has, where they are not all that the engine has."""

    shape: tuple[int, ...]
    dtype: str
    trainable: bool = True
    kept: tuple[StateKind, ...] | None = None

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes that this rank holds now. `by_kind[kind][tier]`; gathered: whole units held beyond the shard, peaks since
    the engine joined its group; buckets: vectors that gradients cross the group in; staging: host memory that states on
    a disk pass through."""

    by_kind: dict[str, dict[str, int]] = field(default_factory=dict)
    gathered_bytes: int = 0
    gathered_peak_bytes: int = 0
    buckets_bytes: int = 0
    staging_bytes: int = 0
    buffers_bytes: int = 0


@dataclass(slots=True)
class Collective:
    """One that this rank has begun; `sequence` counts those of its group from 1, `unit` says whose values move.
    begun_at: seconds since 1970, by this machine's clock."""

    sequence: int
    kind: str
    unit: str
    numel: int
    begun_at: float
    finished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Elements that passed the collectives since the engine started, counted as the ZeRO paper counts them:
    an all-gather or a reduce-scatter of n elements moves n, an all-reduce 2n; n that change their owners move n.
    waited_s: what the process spent waiting for them. recent: the last ones in the present group, oldest first."""

    elements: dict[str, int] = field(default_factory=dict)
    bytes_sent: int = 0
    calls: int = 0
    waited_s: float = 0.0
    recent: tuple[Collective, ...] = ()


class Meter:
    """Counts what an engine moves, over all groups that it belongs to."""

    def __init__(self) -> None:
        self._elements: Counter[str] = Counter()
        self._bytes_sent = self._calls = 0
        self.waited_s = 0.0
        self.recent: deque[Collective] = deque(maxlen=RECENT)
        self._sequence = 0

    def start_group(self) -> None:
        self.recent.clear()
        self._sequence = 0

    def count(self, kind: str, unit: str, *, numel: int, elements: int, sent_bytes: int) -> Collective:
        self._elements[kind] += elements
        self._bytes_sent += sent_bytes
        self._calls += 1
        self._sequence += 1
        self.recent.append(Collective(self._sequence, kind, unit, numel, time.time()))
        return self.recent[-1]

    def total(self) -> Traffic:
        return Traffic(
            elements=dict(self._elements),
            bytes_sent=self._bytes_sent,
            calls=self._calls,
            waited_s=self.waited_s,
            recent=tuple(self.recent),
        )
