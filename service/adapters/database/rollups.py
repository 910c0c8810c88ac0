"""Roll-ups of samples: one row for a thousand steps of a series. They make the chart of a long run quick, and go on to
count what was thinned. A later generation that comes back to a step takes its roll-up away; it is made anew."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.database import tables
from service.adapters.database.counting import Extent, counts, key_of, lengths, range_of
from service.domain.series import GROUP_RANK, Point, Series, Stretch, bucket_width, stretches
from service.domain.wire import Sample

STEPS = 1000
_T = tables.rollups

_LAST = "SELECT name, rank, MAX(bucket) AS last FROM rollups WHERE job_id = :job_id GROUP BY name, rank"
_LAST_OF = """
SELECT bucket FROM rollups WHERE job_id = :job_id AND name = :name AND rank = :rank ORDER BY bucket DESC LIMIT 1
"""
# At each step the newest generation; of each bucket the last step's row is the one that is shown.
_ROLL = """
INSERT INTO rollups (job_id, name, rank, bucket, low, high, count, step, generation, value, at)
SELECT job_id, name, rank, bucket, low, high, count, step, generation, value, at FROM (
    SELECT job_id, name, rank, step / {steps} AS bucket, step, generation, value, at,
           MIN(value) OVER of_bucket AS low, MAX(value) OVER of_bucket AS high, COUNT(*) OVER of_bucket AS count,
           ROW_NUMBER() OVER (PARTITION BY step / {steps} ORDER BY step DESC) AS from_last
    FROM (
        SELECT samples.*, ROW_NUMBER() OVER (PARTITION BY step ORDER BY generation DESC) AS age
        FROM samples WHERE {range}
    ) AS every WHERE age = 1 WINDOW of_bucket AS (PARTITION BY step / {steps})
) AS newest WHERE from_last = 1 ON CONFLICT DO NOTHING
"""
_ROLLED = (
    "SELECT rank, MIN(bucket) AS first, MAX(bucket) + 1 AS upto FROM rollups WHERE job_id = :job_id AND name = :name"
)
# What is rolled up, and the steps behind it as they are. CROSS: SQLite goes by the key from what stands before it.
_SERIES = """
WITH rolled AS (
    SELECT rank, bucket * {steps} AS start, low, high, count, step, generation, value, at
    FROM rollups WHERE job_id = :job_id AND name = :name
), ends(rank, generation, upto) AS (
    VALUES {ends}
), later AS (
    SELECT s.rank, s.step, MAX(s.generation) AS generation FROM ends e CROSS JOIN samples s
    WHERE s.job_id = :job_id AND s.name = :name AND s.rank = e.rank AND s.generation = e.generation AND s.step >= e.upto
    GROUP BY s.rank, s.step
), parts AS (
    SELECT * FROM rolled
    UNION ALL
    SELECT s.rank, s.step, s.value, s.value, 1, s.step, s.generation, s.value, s.at
    FROM later l CROSS JOIN samples s
    WHERE s.job_id = :job_id AND s.name = :name AND s.rank = l.rank AND s.generation = l.generation AND s.step = l.step
), buckets AS (
    SELECT rank, (start - {first}) / {width} AS bucket, MIN(low) AS low, MAX(high) AS high, SUM(count) AS count,
           MAX(step) AS last
    FROM parts GROUP BY rank, (start - {first}) / {width}
)
SELECT b.rank, b.low, b.high, b.count, p.step, p.generation, p.value, p.at
FROM buckets b JOIN parts p ON p.rank = b.rank AND p.step = b.last ORDER BY b.rank, b.bucket
"""


async def unrolled(connection: AsyncConnection, job_id: str, *, rows: int) -> tuple[Stretch, ...]:
    """Every bucket that is complete and has no row yet."""
    done = (await connection.execute(sa.text(_LAST), {"job_id": job_id})).all()
    lasts = {(name, rank): last * STEPS for name, rank, last in done}
    found: list[Stretch] = []
    for (name, rank), (first, last) in (await lengths(connection, job_id)).items():
        after = lasts.get((name, rank))
        begin, end = first // STEPS * STEPS if after is None else after + STEPS, last // STEPS * STEPS
        if begin < end:
            buckets = await counts(connection, job_id, name, rank, begin=begin, end=end, width=STEPS)
            found += stretches(buckets, name=name, rank=rank, first=begin, width=STEPS, rows=rows, after=after)
    return tuple(found)


async def roll(connection: AsyncConnection, job_id: str, stretch: Stretch) -> int:
    """A row for each of its buckets; none where what lies before it is no longer, or not yet, rolled up: who goes on
    from the last row would never come back to the gap."""
    key = key_of(job_id, stretch.name, stretch.rank)
    last = (await connection.execute(sa.text(_LAST_OF), key)).scalar()
    if (None if last is None else last * STEPS) != stretch.after:
        return 0
    rows = await range_of(connection, job_id, stretch.name, stretch.rank, begin=stretch.begin, end=stretch.end)
    return (await connection.execute(sa.text(_ROLL.format(steps=STEPS, range=rows)), key)).rowcount


async def unroll(connection: AsyncConnection, job_id: str, samples: Sequence[Sample]) -> None:
    """Samples of steps that are rolled up already: what stands there is no longer true."""
    lowest = min(sample.step for sample in samples) // STEPS
    await connection.execute(_T.delete().where(_T.c.job_id == job_id, _T.c.bucket >= lowest))


async def rolled_series(
    connection: AsyncConnection, job_id: str, whole: Sequence[Extent], *, points: int
) -> list[Series] | None:
    """All of one name from its roll-ups; None where there are none, or where so many points show more than they do."""
    name, last = whole[0].name, max(each.last for each in whole)
    values = {"job_id": job_id, "name": name}
    rolled = (await connection.execute(sa.text(f"{_ROLLED} GROUP BY rank"), values)).mappings().all()
    first = min((row["first"] * STEPS for row in rolled), default=0)
    width = bucket_width(first=first, last=last, points=points)
    if not rolled or width < STEPS:
        return None
    width = -(-width // STEPS) * STEPS
    upto = {row["rank"]: row["upto"] * STEPS for row in rolled}
    ends = [(each.rank, each.generation, begin) for each in whole if each.last >= (begin := upto.get(each.rank, 0))]
    shown = ", ".join(str(end) for end in ends or [(GROUP_RANK - 1, 0, 0)])
    query = sa.text(_SERIES.format(steps=STEPS, first=first, width=width, ends=shown)).columns(at=tables.Instant)
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
