"""The samples of `memory_database.py`. It rolls nothing up: roll-ups change what a chart costs, not what it shows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from service.domain.series import GROUP_RANK, Series, Stretch, bucket_width, parts, stretches
from service.domain.wire import Sample
from tests.fakes.downsampling import downsample, thinned

if TYPE_CHECKING:
    from tests.fakes.memory_database import Shelves

SampleKey = tuple[str, str, int, int, int]


class Samples:
    def __init__(self, shelves: Shelves) -> None:
        self.shelves = shelves

    async def add(self, job_id: str, samples: Sequence[Sample]) -> None:
        for sample in samples:
            rank = GROUP_RANK if sample.rank is None else sample.rank
            key = (job_id, sample.name, rank, sample.generation, sample.step)
            value = sample.value if math.isfinite(sample.value) else None
            self.shelves.samples.setdefault(key, (value, sample.at))

    async def series(
        self, job_id: str, *, names: Sequence[str], points: int, from_step: int, to_step: int | None = None
    ) -> tuple[Series, ...]:
        end = max((key[4] for key in self.shelves.samples), default=0) if to_step is None else to_step
        own = {key: row for key, row in self.shelves.samples.items() if key[0] == job_id}
        rows = {key: row for key, row in own.items() if from_step <= key[4] <= end}
        found = sorted({key[1] for key in rows if not names or key[1] in names})
        return tuple(series for name in found for series in self._of_name(name, rows, points))

    async def unrolled(self, job_id: str, *, rows: int) -> tuple[Stretch, ...]:
        return ()

    async def roll(self, job_id: str, stretch: Stretch) -> int:
        return 0

    async def crowded(self, job_id: str, *, keep: int, rows: int) -> tuple[Stretch, ...]:
        found: list[Stretch] = []
        own = [key for key in self.shelves.samples if key[0] == job_id]
        for name, rank in sorted({key[1:3] for key in own}):
            steps = [key[4] for key in own if key[1:3] == (name, rank)]
            if len(steps) > keep:
                first = min(steps)
                width = bucket_width(first=first, last=max(steps), points=max(1, keep // 4))
                counts = sorted(Counter((step - first) // width for step in steps).items())
                whole = stretches(counts, name=name, rank=rank, first=first, width=width, rows=rows, after=None)
                found += [part for stretch in whole for part in parts(stretch, rows=rows)]
        return tuple(found)

    async def thin(self, job_id: str, stretch: Stretch) -> int:
        rows = {
            key: value
            for key, (value, _) in self.shelves.samples.items()
            if key[:3] == (job_id, stretch.name, stretch.rank) and stretch.begin <= key[4] < stretch.end
        }
        gone = thinned(rows, first=stretch.begin, width=stretch.width)
        for key in gone:
            del self.shelves.samples[key]
        return len(gone)

    async def drop(self, job_id: str, *, limit: int) -> int:
        gone = [key for key in self.shelves.samples if key[0] == job_id][:limit]
        for key in gone:
            del self.shelves.samples[key]
        return len(gone)

    def _of_name(self, name: str, rows: dict[SampleKey, tuple[float | None, datetime]], points: int) -> list[Series]:
        named = {key: row for key, row in rows.items() if key[1] == name}
        steps = [key[4] for key in named]
        width = bucket_width(first=min(steps), last=max(steps), points=points)
        series = []
        for rank in sorted({key[2] for key in named}):
            own = [(key[4], key[3], value, at) for key, (value, at) in named.items() if key[2] == rank]
            made = downsample(own, first=min(steps), width=width)
            shown = None if rank == GROUP_RANK else rank
            series.append(Series(name=name, rank=shown, total=sum(point.count for point in made), points=made))
        return series
