"""Fewer points than samples, without hiding an extreme: the measure of what the database does in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from service.domain.series import Point

Row = tuple[int, int, float | None, datetime]  # (step, generation, value, at)


def newest_generation(rows: Iterable[Row]) -> list[Row]:
    """At each step the row of the newest generation: what a rollback took back is not shown."""
    chosen: dict[int, Row] = {}
    for row in rows:
        if row[0] not in chosen or row[1] > chosen[row[0]][1]:
            chosen[row[0]] = row
    return [chosen[step] for step in sorted(chosen)]


def downsample(rows: Iterable[Row], *, first: int, width: int) -> tuple[Point, ...]:
    """Buckets of `width` steps from step `first` on; each keeps min, max, last and count."""
    newest = newest_generation(rows)
    buckets: dict[int, list[Row]] = {}
    for row in newest:
        buckets.setdefault((row[0] - first) // width, []).append(row)
    return tuple(_point(bucket) for _, bucket in sorted(buckets.items()))


def _point(bucket: list[Row]) -> Point:
    step, generation, value, at = bucket[-1]
    finite = [row[2] for row in bucket if row[2] is not None]
    return Point(
        step=step,
        value=value,
        min=min(finite, default=None),
        max=max(finite, default=None),
        count=len(bucket),
        generation=generation,
        at=at,
    )


Key = tuple[str, str, int, int, int]  # (job, name, rank, generation, step)


def thinned(rows: Mapping[Key, float | None], *, first: int, width: int) -> list[Key]:
    """Which samples go: neither smallest, largest nor last of their bucket, nor its first that is not finite."""
    buckets: dict[int, list[Key]] = {}
    for key in rows:
        buckets.setdefault((key[4] - first) // width, []).append(key)
    gone: list[Key] = []
    for keys in buckets.values():
        stay = {max(keys, key=lambda key: (key[4], key[3]))}
        finite = {key: value for key in keys if (value := rows[key]) is not None}
        if finite:
            stay.add(min(finite, key=lambda key: (finite[key], key[4])))
            stay.add(min(finite, key=lambda key: (-finite[key], key[4])))
        stay.update(sorted((key for key in keys if rows[key] is None), key=lambda key: key[4])[:1])
        gone += [key for key in keys if key not in stay]
    return gone
