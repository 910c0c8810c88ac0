"""A chart's worth of samples: at most so many points, none of which hides an extreme."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
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


# ---- work on a whole series, in pieces ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Steps `begin` to `end` - 1 of a series, in buckets of `width` steps from `begin` on: what one short transaction
    works on. `rows`: samples there when they were counted; `after`: where the last bucket before it begins.
    """

    name: str
    rank: int
    begin: int
    end: int
    width: int
    rows: int
    after: int | None


def stretches(
    counts: Iterable[tuple[int, int]], *, name: str, rank: int, first: int, width: int, rows: int, after: int | None
) -> Iterator[Stretch]:
    """As many whole buckets as have `rows` samples together, from counts by bucket in order; a larger one stands alone.

    Bucket 0 begins at step `first`; `after` is of what lies before it.
    """
    open_: Stretch | None = None
    for bucket, count in counts:
        begin = first + bucket * width
        if open_ is not None and open_.rows + count <= rows:
            open_ = replace(open_, end=begin + width, rows=open_.rows + count)
        else:
            if open_ is not None:
                yield open_
            open_ = Stretch(name=name, rank=rank, begin=begin, end=begin + width, width=width, rows=count, after=after)
        after = begin
    if open_ is not None:
        yield open_


def parts(stretch: Stretch, *, rows: int) -> Iterator[Stretch]:
    """A bucket of more than `rows` samples, as finer buckets: whoever thins these first keeps its extremes."""
    width = max(1, stretch.width * rows // stretch.rows)
    if width >= stretch.width:
        yield stretch
        return
    for begin in range(stretch.begin, stretch.end, width):
        yield replace(stretch, begin=begin, end=min(begin + width, stretch.end), width=width, rows=rows)


def together(found: Iterable[Stretch], *, rows: int) -> Iterator[tuple[Stretch, ...]]:
    """Neighbours that have at most `rows` samples in all, for one transaction."""
    pack: tuple[Stretch, ...] = ()
    for stretch in found:
        if pack and sum(each.rows for each in pack) + stretch.rows > rows:
            yield pack
            pack = ()
        pack = (*pack, stretch)
    if pack:
        yield pack
