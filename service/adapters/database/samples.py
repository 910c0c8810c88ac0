"""Samples: inserted in batches, read downsampled. The measure of the SQL is `tests/fakes/downsampling.py`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.database import tables
from service.adapters.database.counting import ENDLESS, Extent, extents
from service.adapters.database.rollups import roll, rolled_series, unroll, unrolled
from service.adapters.database.thinning import crowded, thin
from service.domain.series import GROUP_RANK, Point, Series, Stretch, bucket_width
from service.domain.text import askable
from service.domain.wire import Sample

NAME_LIMIT = 64

_INSERT = sa.text(
    "INSERT INTO samples (job_id, name, rank, generation, step, value, at) "
    "VALUES (:job_id, :name, :rank, :generation, :step, :value, :at) ON CONFLICT DO NOTHING"
).bindparams(sa.bindparam("at", type_=tables.Instant))

# `chosen`: the rows to show; where generations overlap, at each step that of the newest. CROSS: SQLite goes by the key
# from the parts, which are the ranks and generations that there are.
_FOUND = """
parts p CROSS JOIN samples s
WHERE s.job_id = :job_id AND s.name = :name AND s.rank = p.rank AND s.generation = p.generation
      AND s.step >= :first AND s.step <= :last
"""
_ALL = f"SELECT s.rank, s.step, s.generation, s.value FROM {_FOUND}"
_NEWEST = f"""
SELECT s.rank, s.step, s.generation, s.value FROM (
    SELECT s.rank, s.step, MAX(s.generation) AS generation FROM {_FOUND} GROUP BY s.rank, s.step
) n CROSS JOIN samples s
WHERE s.job_id = :job_id AND s.name = :name AND s.rank = n.rank AND s.generation = n.generation AND s.step = n.step
"""
# The last row of a bucket is found by one number that holds step and generation, and then by its key: a join on the
# step alone would look at every row for every bucket.
_RADIX = 2**20
_SERIES = """
WITH parts(rank, generation) AS (VALUES {parts}), chosen AS ({chosen}), buckets AS (
    SELECT rank, (step - :first) / :width AS bucket, MIN(value) AS low, MAX(value) AS high, COUNT(*) AS count,
           MAX(step * {radix} + generation) AS final
    FROM chosen GROUP BY rank, (step - :first) / :width
)
SELECT b.rank, b.low, b.high, b.count, s.step, s.generation, s.value, s.at
FROM buckets b JOIN samples s ON s.job_id = :job_id AND s.name = :name AND s.rank = b.rank
                             AND s.generation = b.final % {radix} AND s.step = b.final / {radix}
ORDER BY b.rank, b.bucket
"""


_DROP = sa.text("""
DELETE FROM samples WHERE (job_id, name, rank, generation, step) IN (
    SELECT job_id, name, rank, generation, step FROM samples WHERE job_id = :job_id
    ORDER BY name, rank, generation, step LIMIT :limit
)
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """The steps of one name, and whether a rollback made generations overlap in them."""

    name: str
    first: int
    last: int
    overlaps: bool


def _spans(extents: Iterable[Extent]) -> list[_Span]:
    """One for each name, over all ranks."""
    parts: dict[tuple[str, int], tuple[int, int]] = {}
    for each in extents:
        first, last = parts.get((each.name, each.generation), (each.first, each.last))
        parts[each.name, each.generation] = min(first, each.first), max(last, each.last)
    found: dict[str, _Span] = {}
    for (name, _), (first, last) in sorted(parts.items()):
        before = found.get(name)
        found[name] = _Span(
            name=name,
            first=min(first, before.first) if before else first,
            last=max(last, before.last) if before else last,
            overlaps=before is not None and (before.overlaps or first <= before.last),
        )
    return list(found.values())


class SqlSamples:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, job_id: str, samples: Sequence[Sample]) -> None:
        rows = [_row(job_id, sample) for sample in samples if askable(sample.name, limit=NAME_LIMIT)]
        if rows:
            await self._connection.execute(_INSERT, rows)
            await unroll(self._connection, job_id, samples)

    async def series(
        self, job_id: str, *, names: Sequence[str], points: int, from_step: int, to_step: int | None = None
    ) -> tuple[Series, ...]:
        wanted = [name for name in dict.fromkeys(names) if askable(name, limit=NAME_LIMIT)]
        if names and not wanted:
            return ()
        end = ENDLESS if to_step is None else to_step
        found = await extents(self._connection, job_id, names=wanted, from_step=from_step, to_step=end)
        series: list[Series] = []
        for one in _spans(found):
            rolled, parts = None, [each for each in found if each.name == one.name]
            if from_step == 0 and to_step is None:
                rolled = await rolled_series(self._connection, job_id, parts, points=points)
            series += await self._of_name(job_id, one, parts, points) if rolled is None else rolled
        return tuple(series)

    async def unrolled(self, job_id: str, *, rows: int) -> tuple[Stretch, ...]:
        return await unrolled(self._connection, job_id, rows=rows)

    async def roll(self, job_id: str, stretch: Stretch) -> int:
        return await roll(self._connection, job_id, stretch)

    async def crowded(self, job_id: str, *, keep: int, rows: int) -> tuple[Stretch, ...]:
        return await crowded(self._connection, job_id, keep=keep, rows=rows)

    async def thin(self, job_id: str, stretch: Stretch) -> int:
        return await thin(self._connection, job_id, stretch)

    async def drop(self, job_id: str, *, limit: int) -> int:
        return (await self._connection.execute(_DROP, {"job_id": job_id, "limit": limit})).rowcount

    async def _of_name(self, job_id: str, span: _Span, parts: Sequence[Extent], points: int) -> list[Series]:
        chosen, shown = _NEWEST if span.overlaps else _ALL, ", ".join(f"({e.rank}, {e.generation})" for e in parts)
        query = sa.text(_SERIES.format(chosen=chosen, parts=shown, radix=_RADIX)).columns(at=tables.Instant)
        width = bucket_width(first=span.first, last=span.last, points=points)
        values = {"job_id": job_id, "name": span.name, "first": span.first, "last": span.last, "width": width}
        by_rank: dict[int, list[Point]] = {}
        for row in (await self._connection.execute(query, values)).mappings():
            by_rank.setdefault(row["rank"], []).append(_point(row))
        return [_series(span.name, rank, found) for rank, found in by_rank.items()]


def _row(job_id: str, sample: Sample) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "name": sample.name,
        "rank": GROUP_RANK if sample.rank is None else sample.rank,
        "generation": sample.generation,
        "step": sample.step,
        "value": sample.value if math.isfinite(sample.value) else None,
        "at": sample.at,
    }


def _point(row: sa.RowMapping) -> Point:
    return Point(
        step=row["step"],
        value=row["value"],
        min=row["low"],
        max=row["high"],
        count=row["count"],
        generation=row["generation"],
        at=row["at"],
    )


def _series(name: str, rank: int, points: list[Point]) -> Series:
    return Series(
        name=name,
        rank=None if rank == GROUP_RANK else rank,
        total=sum(point.count for point in points),
        points=tuple(points),
    )
