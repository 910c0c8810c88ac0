"""What the past of a job says about its turn: nobody waits for ever, and how it scales is learnt."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from service.domain.allocation import allocate, demand_of
from service.domain.job import Job, JobState, Progress
from service.domain.spec import WorkerBounds
from service.domain.standing import AGE_S, TURN_S, Standing, looked_at
from tests.contract.values import NOW, SPEC, job

TICK = timedelta(seconds=60)


def queued(index: int, *, priority: int, workers: int, at: int) -> Job:
    spec = SPEC.model_copy(update={"priority": priority})
    bounds = WorkerBounds(min=workers, max=workers)
    now = NOW + at * TICK
    facts = {"state": JobState.QUEUED, "granted": 0, "progress": Progress(), "created_at": now, "since": now}
    return job(index, spec=spec, bounds=bounds, **facts)


@pytest.mark.parametrize(("busy", "length"), [(1, 1), (4, 2), (2, 3)])
def test_a_job_of_the_lowest_priority_starts_although_higher_ones_never_cease_to_come(busy: int, length: int) -> None:
    """Every minute another one of the highest priority comes, and each trains for some minutes on all slots."""
    low = queued(1, priority=0, workers=busy, at=0)
    jobs, standings, trained = {low.id: low}, dict[str, Standing](), dict[str, int]()
    for minute in range(111 * length + 10):
        now = NOW + minute * TICK
        new = queued(minute + 2, priority=100, workers=busy, at=minute)
        jobs[new.id] = new
        standings = {key: looked_at(standings.get(key, Standing()), each, now=now) for key, each in jobs.items()}
        demands = [demand_of(each, slot_kind="cpu", standing=standings[key], now=now) for key, each in jobs.items()]
        target = allocate(demands, slots=busy)
        assert sum(target.values()) <= busy
        if target[low.id]:
            return
        for key, workers in target.items():
            jobs[key] = replace(jobs[key], granted=workers)
            trained[key] = trained.get(key, 0) + bool(workers)
        jobs = {key: each for key, each in jobs.items() if trained[key] < length}
    raise AssertionError("it never started")


def test_who_has_waited_keeps_its_place_for_a_turn() -> None:
    waited = looked_at(Standing(), queued(1, priority=0, workers=1, at=0), now=NOW)
    later = NOW + timedelta(seconds=TURN_S + 30 * AGE_S)
    assert waited.points(now=later) == 30
    started = looked_at(waited, job(granted=1), now=later)
    assert started.points(now=later) == 30
    assert started.points(now=later + timedelta(seconds=TURN_S)) == 0


@pytest.mark.parametrize("waiting", [1, 3])
def test_among_equals_nobody_is_stopped_before_its_turn_is_over_and_everybody_gets_one(waiting: int) -> None:
    """As many jobs as slots train for ever; others of the same priority come a moment later; looked at each second."""
    slots = 2
    jobs = {each.id: each for each in (queued(i, priority=50, workers=1, at=0) for i in range(1, slots + waiting + 1))}
    first = list(jobs)[:slots]
    jobs = {key: replace(each, granted=int(key in first)) for key, each in jobs.items()}
    standings, began, turns = dict[str, Standing](), dict.fromkeys(first, 0), dict[str, list[int]]()
    for second in range(int(4 * TURN_S)):
        now = NOW + timedelta(seconds=second)
        standings = {key: looked_at(standings.get(key, Standing()), each, now=now) for key, each in jobs.items()}
        demands = [demand_of(each, slot_kind="cpu", standing=standings[key], now=now) for key, each in jobs.items()]
        for key, workers in allocate(demands, slots=slots).items():
            if workers and key not in began:
                began[key] = second
            elif not workers and key in began:
                turns.setdefault(key, []).append(second - began.pop(key))
            if workers != jobs[key].granted:
                jobs[key] = replace(jobs[key], granted=workers, since=now)
    assert min(length for lengths in turns.values() for length in lengths) >= TURN_S
    assert set(turns) | set(began) == set(jobs), "everybody had a turn"


def test_a_larger_priority_does_not_wait_for_the_end_of_a_turn() -> None:
    """Whatever the smaller one has trained for already."""
    low, high = queued(1, priority=50, workers=1, at=0), queued(2, priority=51, workers=1, at=5)
    standing = looked_at(looked_at(Standing(), low, now=NOW), replace(low, granted=1), now=NOW + timedelta(seconds=1))
    now = NOW + 9 * TICK
    demands = [
        demand_of(replace(low, granted=1), slot_kind="cpu", standing=standing, now=now),
        demand_of(high, slot_kind="cpu", standing=looked_at(Standing(), high, now=now), now=now),
    ]
    assert allocate(demands, slots=1) == {low.id: 0, high.id: 1}


def test_what_others_took_is_remembered_and_what_the_user_took_is_not() -> None:
    before = looked_at(Standing(), job(granted=3), now=NOW)
    assert looked_at(before, job(granted=2), now=NOW).shrunk_for_s(now=NOW + TICK) == 60
    scaled = job(granted=2, bounds=WorkerBounds(min=1, max=2))
    assert looked_at(before, scaled, now=NOW).shrunk_for_s(now=NOW) == float("inf")


@pytest.mark.parametrize(
    ("rates", "scaling"), [({}, 1.0), ({2: 9.0}, 1.0), ({1: 10, 4: 20}, 0.5), ({1: 10, 2: 5}, 0.0)]
)
def test_how_a_job_scales_is_read_from_the_sizes_it_ran_at(rates: dict[int, float], scaling: float) -> None:
    assert Standing(rates=rates).scaling == pytest.approx(scaling)


def test_a_rate_counts_once_the_group_has_trained_a_while_at_its_size() -> None:
    seen = job(granted=2, since=NOW, progress=Progress(workers=2, tokens_per_s=100.0))
    assert looked_at(Standing(), seen, now=NOW).rates == {}
    once = looked_at(Standing(), seen, now=NOW + TICK)
    assert once.rates == {2: 100.0}
    faster = replace(seen, progress=Progress(workers=2, tokens_per_s=200.0))
    assert looked_at(once, faster, now=NOW + TICK).rates == {2: 125.0}
    resizing = replace(seen, granted=3)
    assert looked_at(once, resizing, now=NOW + TICK).rates == {2: 100.0}
