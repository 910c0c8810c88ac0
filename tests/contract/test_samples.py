"""Samples: idempotent in, downsampled out, extremes kept; the SQL agrees with `fakes/downsampling.py`."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.domain.series import bucket_width
from service.domain.wire import Sample
from service.ports import Database
from tests.contract.values import job, number, sample
from tests.fakes.downsampling import downsample, thinned


async def store(database: Database, *samples: Sample) -> None:
    async with database.write() as work:
        if await work.jobs.counts() == {}:
            await work.jobs.add(job())
        await work.samples.add(number(1), samples)
        await work.commit()


async def series(database: Database, *names: str, points: int = 100, from_step: int = 0, to_step: int | None = None):  # type: ignore[no-untyped-def]
    async with database.read() as work:
        return await work.samples.series(number(1), names=names, points=points, from_step=from_step, to_step=to_step)


async def test_a_sample_sent_twice_is_one_sample(database: Database) -> None:
    await store(database, sample(1, 2.0), sample(1, 2.0))
    await store(database, sample(1, 2.0), sample(2, 1.0))
    (only,) = await series(database, "loss")
    assert [(point.step, point.value, point.count) for point in only.points] == [(1, 2.0, 1), (2, 1.0, 1)]
    assert only.total == 2


async def test_a_spike_of_one_step_is_seen_at_every_zoom(database: Database) -> None:
    await store(database, *(sample(step, 99.0 if step == 617 else 1.0) for step in range(1000)))
    for points in (1, 3, 10, 999, 1000):
        (only,) = await series(database, "loss", points=points)
        assert len(only.points) <= points
        assert max(point.max for point in only.points) == 99.0
        assert only.total == 1000
        assert only.points[-1].step == 999


async def test_after_a_rollback_the_newest_generation_is_shown_at_each_step(database: Database) -> None:
    await store(database, *(sample(step, 1.0) for step in range(1, 7)))
    await store(database, *(sample(step, 2.0, generation=2) for step in range(4, 6)))
    (only,) = await series(database, "loss")
    assert [(p.step, p.value, p.generation) for p in only.points] == [
        (1, 1.0, 1),
        (2, 1.0, 1),
        (3, 1.0, 1),
        (4, 2.0, 2),
        (5, 2.0, 2),
        (6, 1.0, 1),
    ]
    (one,) = await series(database, "loss", points=1)
    assert (one.points[0].min, one.points[0].max, one.points[0].value, one.total) == (1.0, 2.0, 1.0, 6)


async def test_each_rank_has_its_own_series_and_names_are_chosen(database: Database) -> None:
    await store(
        database, *(sample(1, float(rank), name="mem_params_bytes", rank=rank) for rank in (1, 0)), sample(1, 5.0)
    )
    found = await series(database, "mem_params_bytes")
    assert [(one.rank, one.points[0].value) for one in found] == [(0, 0.0), (1, 1.0)]
    assert [(one.name, one.rank) for one in await series(database)] == [
        ("loss", None),
        ("mem_params_bytes", 0),
        ("mem_params_bytes", 1),
    ]
    assert await series(database, "nothing") == ()
    assert await series(database, "a\x00b") == ()


async def test_steps_outside_of_the_wanted_ones_are_left_out(database: Database) -> None:
    await store(database, *(sample(step, float(step)) for step in range(10)))
    (only,) = await series(database, "loss", from_step=7)
    assert [point.step for point in only.points] == [7, 8, 9]
    (only,) = await series(database, "loss", from_step=3, to_step=4, points=2)
    assert [(point.step, point.count) for point in only.points] == [(3, 1), (4, 1)]
    (only,) = await series(database, "loss", to_step=1)
    assert [point.step for point in only.points] == [0, 1]
    assert await series(database, "loss", from_step=10) == await series(database, "loss", from_step=4, to_step=3) == ()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
async def test_a_value_that_is_not_finite_is_a_point_without_a_value(database: Database, value: float) -> None:
    await store(database, sample(1, 1.0), sample(2, value))
    (only,) = await series(database, "loss", points=1)
    point = only.points[0]
    assert (point.step, point.value, point.min, point.max, point.count) == (2, None, 1.0, 1.0, 2)


rows = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 3), st.floats(-10, 10).map(lambda x: round(x, 3)) | st.just(math.nan)),
    min_size=1,
    max_size=60,
    unique_by=lambda row: row[:2],
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=rows, points=st.integers(1, 50))
async def test_the_database_downsamples_as_the_domain_does(
    database: Database, rows: list[tuple[int, int, float]], points: int
) -> None:
    async with database.write() as work:
        await work.jobs.add(job())
        made = [sample(step, value, generation=generation) for step, generation, value in rows]
        await work.samples.add(number(1), made)
        (found,) = await work.samples.series(number(1), names=["loss"], points=points, from_step=0)
    steps = [step for step, _, _ in rows]
    values = [(s.step, s.generation, s.value if math.isfinite(s.value) else None, s.at) for s in made]
    width = bucket_width(first=min(steps), last=max(steps), points=points)
    assert found.points == downsample(values, first=min(steps), width=width)


async def test_a_thinned_series_is_shorter_and_keeps_every_extreme(database: Database) -> None:
    values = {step: math.sin(step) for step in range(1, 1001)} | {400: 99.0, 617: -99.0, 800: math.nan}
    await store(database, *(sample(step, value) for step, value in values.items()))
    await store(database, *(sample(step, 1.0, name="lr") for step in range(50)))
    gone = await thin(database, keep=100, rows=300)
    (thinner,) = await series(database, "loss", points=1)
    assert thinner.total == 1000 - gone <= 100
    assert [(point.min, point.max, point.step) for point in thinner.points] == [(-99.0, 99.0, 1000)]
    (fine,) = await series(database, "loss", points=1000)
    assert [point.step for point in fine.points if point.value is None] == [800]
    assert (await series(database, "lr"))[0].total == 50


@pytest.mark.parametrize("keep", [400, 40])
async def test_what_is_thinned_in_short_transactions_is_what_would_go_at_once(database: Database, keep: int) -> None:
    """Buckets of fewer samples than a transaction may touch, and of more: 10 steps and 100, from two generations."""
    values = {(generation, step): math.sin(step + generation) for generation in (1, 2) for step in range(7, 1007)}
    # The first stays, so that a second pass has the same buckets.
    values |= {(1, 7): -99.0, (1, 400): math.nan, (2, 403): math.inf, (1, 617): 99.0}
    await store(database, *(sample(step, value, generation=generation) for (generation, step), value in values.items()))
    rows = {("", "loss", -1, *key): value if math.isfinite(value) else None for key, value in values.items()}
    gone = thinned(rows, first=7, width=bucket_width(first=7, last=1006, points=keep // 4))
    assert await thin(database, keep=keep, rows=90) == len(gone)
    (fine,) = await series(database, "loss", points=1000)
    left = {key[4]: key[3] for key in sorted(rows.keys() - set(gone))}
    assert {point.step: point.generation for point in fine.points} == left


async def thin(database: Database, *, keep: int, rows: int) -> int:
    """How many went in all; no transaction of it touches more than `rows`."""
    gone = 0
    while True:
        async with database.read() as work:
            found = await work.samples.crowded(number(1), keep=keep, rows=rows)
        if not found:
            return gone
        for stretch in found:
            async with database.write() as work:
                went = await work.samples.thin(number(1), stretch)
                await work.commit()
            assert went <= stretch.rows <= rows
            gone += went


def wavy(first: int, last: int, *, generation: int = 1, rank: int | None = None) -> list[Sample]:
    values = {step: math.sin(step) for step in range(first, last)}
    return [sample(step, value, generation=generation, rank=rank) for step, value in values.items()]


async def roll(database: Database, *, rows: int = 2500) -> int:
    """How many rows were made; no transaction of it looks at more than `rows` samples."""
    made = 0
    async with database.read() as work:
        found = await work.samples.unrolled(number(1), rows=rows)
    for stretch in found:
        assert stretch.rows <= rows
        async with database.write() as work:
            made += await work.samples.roll(number(1), stretch)
            await work.commit()
    return made


async def roll_and_thin(database: Database, *, keep: int) -> int:
    made = await roll(database)
    await thin(database, keep=keep, rows=10_000)
    return made


@pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)
async def test_a_rolled_up_chart_is_that_of_all_samples_also_when_most_are_gone(database: Database) -> None:
    """Two ranks, of which one left early; a spike and a value that is not finite in what is thinned away."""
    odd = {1234: 99.0, 2345: -99.0, 3999: math.nan}
    group = [sample(s.step, odd.get(s.step, s.value)) for s in wavy(17, 6001)]
    await store(database, *group, *wavy(17, 2001, rank=1))
    assert await roll_and_thin(database, keep=200) == 6 + 2
    for points in (1, 3, 5):
        whole, of_rank = await series(database, "loss", points=points)
        width = -(-bucket_width(first=0, last=6000, points=points) // 1000) * 1000
        rows = [(s.step, s.generation, s.value if math.isfinite(s.value) else None, s.at) for s in group]
        assert whole.points == downsample(rows, first=0, width=width)
        assert (whole.total, len(whole.points) <= points) == (5984, True)
        assert (of_rank.rank, of_rank.total, of_rank.points[-1].step) == (1, 1984, 2000)
    (fine, _) = await series(database, "loss", points=2000)
    assert {99.0, -99.0} <= {point.max for point in fine.points} | {point.min for point in fine.points}
    assert await roll_and_thin(database, keep=200) == 0


@pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)
async def test_who_goes_back_to_a_step_is_rolled_up_anew_from_there(database: Database) -> None:
    await store(database, *wavy(0, 4100))
    assert await roll_and_thin(database, keep=100_000) == 4
    again = [sample(step, 5.0, generation=2) for step in range(2500, 3600)]
    async with database.write() as work:
        await work.samples.add(number(1), again)
        await work.commit()
    for made in (2, 0):
        (found,) = await series(database, "loss", points=4)
        newest = {s.step: s for s in [*wavy(0, 4100), *again]}
        rows = [(s.step, s.generation, s.value, s.at) for s in newest.values()]
        assert found.points == downsample(rows, first=0, width=2000)
        assert await roll_and_thin(database, keep=100_000) == made


@pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)
async def test_a_job_that_goes_back_while_it_is_rolled_up_leaves_no_gap(database: Database) -> None:
    await store(database, *wavy(0, 6100))
    async with database.read() as work:
        first, *later = await work.samples.unrolled(number(1), rows=2000)
    async with database.write() as work:
        assert await work.samples.roll(number(1), first) == 2
        # Back to step 1,500: what was rolled up from there on is not true any more.
        await work.samples.add(number(1), [sample(1500, 5.0, generation=2)])
        assert [await work.samples.roll(number(1), stretch) for stretch in later] == [0, 0]
        await work.commit()
    assert await roll(database) == 5
    (found,) = await series(database, "loss", points=6)
    assert [(point.max == 5.0, point.count) for point in found.points] == [
        (True, 2000),
        *[(False, 2000)] * 2,
        (False, 100),
    ]


async def test_the_samples_of_a_job_go_a_few_at_a_time(database: Database) -> None:
    await store(database, *(sample(step, 1.0, rank=rank) for rank in (0, 1) for step in range(5)))
    async with database.write() as work:
        assert await work.samples.drop(number(2), limit=4) == 0
        assert [await work.samples.drop(number(1), limit=4) for _ in range(4)] == [4, 4, 2, 0]
        await work.commit()
    assert await series(database, "loss") == ()
