"""Which series a job has, how many samples, and where. Readers find out: the writer is held for short stretches only.

The key of a sample is (job, name, rank, generation, step): whatever names all that comes before the step is found by it
at once, however long the series is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

# From each name, rank and generation to the next by the key, whatever there is between.
_EXTENTS = """
WITH RECURSIVE names(name) AS (
    SELECT MIN(name) FROM samples WHERE job_id = :job_id
    UNION ALL
    SELECT (SELECT MIN(s.name) FROM samples s WHERE s.job_id = :job_id AND s.name > names.name)
    FROM names WHERE names.name IS NOT NULL
), ranks(name, rank) AS (
    SELECT names.name, (SELECT MIN(s.rank) FROM samples s WHERE s.job_id = :job_id AND s.name = names.name)
    FROM names WHERE names.name IS NOT NULL {names}
    UNION ALL
    SELECT ranks.name, (
        SELECT MIN(s.rank) FROM samples s WHERE s.job_id = :job_id AND s.name = ranks.name AND s.rank > ranks.rank
    ) FROM ranks WHERE ranks.rank IS NOT NULL
), series(name, rank, generation) AS (
    SELECT ranks.name, ranks.rank, (
        SELECT MIN(s.generation) FROM samples s WHERE s.job_id = :job_id AND s.name = ranks.name AND s.rank = ranks.rank
    ) FROM ranks WHERE ranks.rank IS NOT NULL
    UNION ALL
    SELECT series.name, series.rank, (
        SELECT MIN(s.generation) FROM samples s WHERE {same} AND s.generation > series.generation
    ) FROM series WHERE series.generation IS NOT NULL
)
SELECT name, rank, generation,
       (SELECT MIN(s.step) FROM samples s WHERE {same} AND {steps}) AS first,
       (SELECT MAX(s.step) FROM samples s WHERE {same} AND {steps}) AS last
FROM series WHERE generation IS NOT NULL
"""
_SAME = "s.job_id = :job_id AND s.name = series.name AND s.rank = series.rank"
_STEPS = "s.generation = series.generation AND s.step >= :from_step AND s.step <= :to_step"
ENDLESS = 2**62
_OF_SERIES = "job_id = :job_id AND name = :name AND rank = :rank"
_GENERATIONS = f"""
WITH RECURSIVE found(generation) AS (
    SELECT MIN(generation) FROM samples WHERE {_OF_SERIES}
    UNION ALL
    SELECT (SELECT MIN(s.generation) FROM samples s WHERE {_OF_SERIES} AND s.generation > found.generation)
    FROM found WHERE found.generation IS NOT NULL
)
SELECT generation FROM found WHERE generation IS NOT NULL
"""
_MORE = f"SELECT COUNT(*) FROM (SELECT 1 FROM samples WHERE {_OF_SERIES} LIMIT :most) AS counted"
_COUNTS = """
SELECT (step - {begin}) / {width} AS bucket, COUNT(*) AS count FROM samples WHERE {range}
GROUP BY (step - {begin}) / {width} ORDER BY (step - {begin}) / {width}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The steps of a series in one generation."""

    name: str
    rank: int
    generation: int
    first: int
    last: int


def key_of(job_id: str, name: str, rank: int) -> dict[str, str | int]:
    return {"job_id": job_id, "name": name, "rank": rank}


async def extents(
    connection: AsyncConnection, job_id: str, *, names: Sequence[str] = (), from_step: int = 0, to_step: int = ENDLESS
) -> list[Extent]:
    """Of what there is in these steps, under these names or all."""
    wanted = "AND names.name IN :names" if names else ""
    query = sa.text(_EXTENTS.format(names=wanted, same=_SAME, steps=_STEPS))
    if names:
        query = query.bindparams(sa.bindparam("names", value=list(names), expanding=True))
    found = await connection.execute(query, {"job_id": job_id, "from_step": from_step, "to_step": to_step})
    return [Extent(**row) for row in found.mappings() if row["first"] is not None]


async def lengths(connection: AsyncConnection, job_id: str) -> dict[tuple[str, int], tuple[int, int]]:
    """(name, rank) -> first and last step of the series over all generations, in order."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for each in await extents(connection, job_id):
        first, last = found.get((each.name, each.rank), (each.first, each.last))
        found[each.name, each.rank] = min(first, each.first), max(last, each.last)
    return dict(sorted(found.items()))


async def has_more(connection: AsyncConnection, job_id: str, name: str, rank: int, *, than: int) -> bool:
    """It counts no further."""
    counted = await connection.execute(sa.text(_MORE), {**key_of(job_id, name, rank), "most": than + 1})
    return bool(counted.scalar_one() > than)


async def range_of(connection: AsyncConnection, job_id: str, name: str, rank: int, *, begin: int, end: int) -> str:
    """The condition on rows of `samples` for these steps. The numbers are ours; the key's parts are parameters."""
    found = await connection.execute(sa.text(_GENERATIONS), key_of(job_id, name, rank))
    generations = ", ".join(str(generation) for generation in found.scalars()) or "NULL"
    return f"{_OF_SERIES} AND generation IN ({generations}) AND step >= {begin} AND step < {end}"


async def counts(
    connection: AsyncConnection, job_id: str, name: str, rank: int, *, begin: int, end: int, width: int
) -> list[tuple[int, int]]:
    """(bucket of `width` steps from `begin` on, samples in it), in order; buckets without any are left out."""
    rows = await range_of(connection, job_id, name, rank, begin=begin, end=end)
    query = sa.text(_COUNTS.format(begin=begin, width=width, range=rows))
    return [(bucket, count) for bucket, count in await connection.execute(query, key_of(job_id, name, rank))]
