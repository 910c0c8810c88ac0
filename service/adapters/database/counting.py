"""How many samples a job's series have, and where. Readers count, so that the writer is held for short stretches only.

The key of a sample has the generation before the step: a range of steps is found quickly where generations are named.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

_EXTENTS = """
SELECT name, rank, MIN(step) AS first, MAX(step) AS last, COUNT(*) AS count
FROM samples WHERE job_id = :job_id GROUP BY name, rank ORDER BY name, rank
"""
_OF_SERIES = "job_id = :job_id AND name = :name AND rank = :rank"
# From each to the next by the key, whatever there is between.
_GENERATIONS = f"""
WITH RECURSIVE found(generation) AS (
    SELECT MIN(generation) FROM samples WHERE {_OF_SERIES}
    UNION ALL
    SELECT (SELECT MIN(s.generation) FROM samples s WHERE {_OF_SERIES} AND s.generation > found.generation)
    FROM found WHERE found.generation IS NOT NULL
)
SELECT generation FROM found WHERE generation IS NOT NULL
"""
_COUNTS = """
SELECT (step - {begin}) / {width} AS bucket, COUNT(*) AS count FROM samples WHERE {range}
GROUP BY (step - {begin}) / {width} ORDER BY (step - {begin}) / {width}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The steps of a series, over all its generations."""

    name: str
    rank: int
    first: int
    last: int
    count: int


def key_of(job_id: str, name: str, rank: int) -> dict[str, str | int]:
    return {"job_id": job_id, "name": name, "rank": rank}


async def extents(connection: AsyncConnection, job_id: str) -> list[Extent]:
    found = await connection.execute(sa.text(_EXTENTS), {"job_id": job_id})
    return [Extent(**row) for row in found.mappings()]


async def range_of(connection: AsyncConnection, job_id: str, name: str, rank: int, *, begin: int, end: int) -> str:
    """The condition on rows of `samples` for these steps. The numbers are ours; the key's parts are parameters."""
    found = await connection.execute(sa.text(_GENERATIONS), key_of(job_id, name, rank))
    generations = ", ".join(str(generation) for generation in found.scalars()) or "NULL"
    return f"{_OF_SERIES} AND generation IN ({generations}) AND step >= {begin} AND step < {end}"


async def counts(
    connection: AsyncConnection, job_id: str, extent: Extent, *, begin: int, end: int, width: int
) -> list[tuple[int, int]]:
    """(bucket of `width` steps from `begin` on, samples in it), in order; buckets without any are left out."""
    rows = await range_of(connection, job_id, extent.name, extent.rank, begin=begin, end=end)
    query = sa.text(_COUNTS.format(begin=begin, width=width, range=rows))
    found = await connection.execute(query, key_of(job_id, extent.name, extent.rank))
    return [(bucket, count) for bucket, count in found]
