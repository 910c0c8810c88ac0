"""A chart's worth of samples: at most so many points, none of which hides an extreme."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

# The names of the contract: the group's, then those that each rank measures.
METRICS = (
    *("loss", "grad_norm", "lr", "tokens_per_s", "step_s", "compute_s", "comm_s", "data_s", "optimizer_s", "workers"),
    *("mfu", "skipped_steps", "loss_scale"),
    *("mem_params_bytes", "mem_grads_bytes", "mem_optimizer_bytes", "mem_activations_peak_bytes"),
    *("mem_gathered_peak_bytes", "mem_process_bytes", "mem_predicted_bytes", "comm_bytes"),
    *("mem_host_bytes", "mem_nvme_bytes", "mem_capacity_bytes"),
)
GROUP_RANK = -1  # the rank under which a sample of the whole group is stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One bucket of steps. `value` is the last one (at `step`); None: not a finite number. `count`: samples in it."""

    step: int
    value: float | None
    min: float | None
    max: float | None
    count: int
    generation: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """`total`: samples there are; `points` are fewer where they were downsampled. `rank` None: the group's."""

    name: str
    rank: int | None
    total: int
    points: tuple[Point, ...]


def bucket_width(*, first: int, last: int, points: int) -> int:
    """Steps per bucket, so that the steps first..last need at most `points` buckets."""
    return max(1, math.ceil((last - first + 1) / points))
