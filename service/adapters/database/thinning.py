"""Thinning: of a series that has too many samples, each bucket of steps keeps its extremes."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.database.counting import counts, has_more, key_of, lengths, range_of
from service.domain.series import Stretch, bucket_width, parts, stretches

# At most four of a bucket stay: its smallest, largest and last, and the first that is not finite.
STAY = 4
# NOT IN: Postgres keeps that list in a hash table whatever it knows of the table; an IN it may join row by row.
_THIN = """
DELETE FROM samples WHERE {range} AND (generation, step) NOT IN (
    SELECT generation, step FROM (
        SELECT generation, step,
               ROW_NUMBER() OVER (PARTITION BY {bucket}, value IS NULL ORDER BY value, step) AS from_low,
               ROW_NUMBER() OVER (PARTITION BY {bucket}, value IS NULL ORDER BY value DESC, step) AS from_high,
               ROW_NUMBER() OVER (PARTITION BY {bucket} ORDER BY step DESC, generation DESC) AS from_last
        FROM samples WHERE {range}
    ) AS ranked WHERE from_low = 1 OR from_high = 1 OR from_last = 1
)
"""


async def crowded(connection: AsyncConnection, job_id: str, *, keep: int, rows: int) -> tuple[Stretch, ...]:
    found: list[Stretch] = []
    for (name, rank), (first, last) in (await lengths(connection, job_id)).items():
        if await has_more(connection, job_id, name, rank, than=keep):
            width = bucket_width(first=first, last=last, points=max(1, keep // STAY))
            buckets = await counts(connection, job_id, name, rank, begin=first, end=last + 1, width=width)
            whole = stretches(buckets, name=name, rank=rank, first=first, width=width, rows=rows, after=None)
            found += [part for stretch in whole for part in parts(stretch, rows=rows)]
    return tuple(found)


async def thin(connection: AsyncConnection, job_id: str, stretch: Stretch) -> int:
    rows = await range_of(connection, job_id, stretch.name, stretch.rank, begin=stretch.begin, end=stretch.end)
    # The driver would take two uses of one parameter for two expressions.
    query = sa.text(_THIN.format(range=rows, bucket=f"(step - {stretch.begin}) / {stretch.width}"))
    return (await connection.execute(query, key_of(job_id, stretch.name, stretch.rank))).rowcount
