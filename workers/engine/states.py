"""The kinds of state that training keeps per parameter element, and what one rank holds of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum


class StateKind(StrEnum):
    """What a byte is for. MASTER and what an optimizer keeps beside it (named as torch's optimizers name it; EMA, the
    average of the weights) are the training state; PARAM is derived from MASTER by a cast, or is itself the fp32
    master: then no MASTER rests."""

    PARAM = "param"
    GRAD = "grad"
    MASTER = "master"
    EXP_AVG = "exp_avg"
    EXP_AVG_SQ = "exp_avg_sq"
    MOMENTUM = "momentum_buffer"
    SUM = "sum"
    EMA = "ema"


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
    an all-gather or a reduce-scatter of n elements moves n, an all-reduce moves 2n.
    waited_s: what the process spent waiting for them. recent: the last ones in the present group, oldest first."""

    elements: dict[str, int] = field(default_factory=dict)
    bytes_sent: int = 0
    calls: int = 0
    waited_s: float = 0.0
    recent: tuple[Collective, ...] = ()
