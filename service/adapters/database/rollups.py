"""Roll-ups of samples: one row for a thousand steps of a series. They make the chart of a long run quick, and go on to
count what was thinned. A later generation that comes back to a step takes its roll-up away; it is made anew."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.database import tables
from service.domain.series import GROUP_RANK, Point, Series, bucket_width
from service.domain.wire import Sample

STEPS = 1000
_T = tables.rollups

_SPANS = """
SELECT s.name AS name, s.rank AS rank, MIN(s.step) AS first, MAX(s.step) AS last, MAX(r.upto) AS upto
FROM samples s LEFT JOIN (
    SELECT name, rank, MAX(bucket) + 1 AS upto FROM rollups WHERE job_id = :job_id GROUP BY name, rank
) r ON r.name = s.name AND r.rank = s.rank
WHERE s.job_id = :job_id GROUP BY s.name, s.rank ORDER BY s.name, s.rank
"""
# At each step the newest generation; of each bucket the last step's row is the one that is shown.
_ROLL = """
INSERT INTO rollups (job_id, name, rank, bucket, low, high, count, step, generation, value, at)
WITH newest AS (
    SELECT step, MAX(generation) AS generation FROM samples
    WHERE job_id = :job_id AND name = :name AND rank = :rank AND step >= {begin} AND step < {end} GROUP BY step
), buckets AS (
    SELECT s.step / {steps} AS bucket, MIN(s.value) AS low, MAX(s.value) AS high, COUNT(*) AS count, MAX(s.step) AS last
    FROM newest n JOIN samples s ON s.job_id = :job_id AND s.name = :name AND s.rank = :rank
                                AND s.generation = n.generation AND s.step = n.step
    GROUP BY s.step / {steps}
)
SELECT s.job_id, s.name, s.rank, b.bucket, b.low, b.high, b.count, s.step, s.generation, s.value, s.at
FROM buckets b JOIN newest n ON n.step = b.last
               JOIN samples s ON s.job_id = :job_id AND s.name = :name AND s.rank = :rank
                             AND s.generation = n.generation AND s.step = n.step
WHERE true ON CONFLICT DO NOTHING
"""
_ROLLED = (
    "SELECT rank, MIN(bucket) AS first, MAX(bucket) + 1 AS upto FROM rollups WHERE job_id = :job_id AND name = :name"
)
# What is rolled up, and the steps behind it as they are.
_SERIES = """
WITH rolled AS (
    SELECT rank, bucket * {steps} AS start, low, high, count, step, generation, value, at
    FROM rollups WHERE job_id = :job_id AND name = :name
), ends AS (
    SELECT rank, MAX(start) + {steps} AS upto FROM rolled GROUP BY rank
), later AS (
    SELECT s.rank, s.step, MAX(s.generation) AS generation FROM samples s LEFT JOIN ends e ON e.rank = s.rank
    WHERE s.job_id = :job_id AND s.name = :name AND s.step >= COALESCE(e.upto, 0) GROUP BY s.rank, s.step
), parts AS (
    SELECT * FROM rolled
    UNION ALL
    SELECT s.rank, s.step, s.value, s.value, 1, s.step, s.generation, s.value, s.at
    FROM later l JOIN samples s ON s.job_id = :job_id AND s.name = :name AND s.rank = l.rank
                               AND s.generation = l.generation AND s.step = l.step
), buckets AS (
    SELECT rank, (start - {first}) / {width} AS bucket, MIN(low) AS low, MAX(high) AS high, SUM(count) AS count,
           MAX(step) AS last
    FROM parts GROUP BY rank, (start - {first}) / {width}
)
SELECT b.rank, b.low, b.high, b.count, p.step, p.generation, p.value, p.at
FROM buckets b JOIN parts p ON p.rank = b.rank AND p.step = b.last ORDER BY b.rank, b.bucket
"""


async def roll(connection: AsyncConnection, job_id: str) -> int:
    """Rolls up every bucket that is complete; returns how many rows were made."""
    made = 0
    for row in (await connection.execute(sa.text(_SPANS), {"job_id": job_id})).mappings().all():
        begin = max(row["first"] // STEPS, row["upto"] or 0) * STEPS
        end = row["last"] // STEPS * STEPS
        if begin < end:
            query = sa.text(_ROLL.format(steps=STEPS, begin=begin, end=end))
            values = {"job_id": job_id, "name": row["name"], "rank": row["rank"]}
            made += (await connection.execute(query, values)).rowcount
    return made


async def unroll(connection: AsyncConnection, job_id: str, samples: Sequence[Sample]) -> None:
    """Samples of steps that are rolled up already: what stands there is no longer true."""
    lowest = min(sample.step for sample in samples) // STEPS
    await connection.execute(_T.delete().where(_T.c.job_id == job_id, _T.c.bucket >= lowest))


async def rolled_series(
    connection: AsyncConnection, job_id: str, name: str, *, last: int, points: int
) -> list[Series] | None:
    """The whole series from its roll-ups; None where there are none, or where so many points show more than they do."""
    values = {"job_id": job_id, "name": name}
    rolled = (await connection.execute(sa.text(f"{_ROLLED} GROUP BY rank"), values)).mappings().all()
    first = min((row["first"] * STEPS for row in rolled), default=0)
    width = bucket_width(first=first, last=last, points=points)
    if not rolled or width < STEPS:
        return None
    width = -(-width // STEPS) * STEPS
    query = sa.text(_SERIES.format(steps=STEPS, first=first, width=width)).columns(at=tables.Instant)
    by_rank: dict[int, list[Point]] = {}
    for row in (await connection.execute(query, values)).mappings():
        by_rank.setdefault(row["rank"], []).append(
            Point(
                step=row["step"],
                value=row["value"],
                min=row["low"],
                max=row["high"],
                count=int(row["count"]),
                generation=row["generation"],
                at=row["at"],
            )
        )
    return [
        Series(
            name=name,
            rank=None if rank == GROUP_RANK else rank,
            total=sum(point.count for point in found),
            points=tuple(found),
        )
        for rank, found in by_rank.items()
    ]
