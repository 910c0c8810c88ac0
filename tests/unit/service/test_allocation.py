"""Who gets how many workers: properties over all mixes of jobs, and the sentences for those who wait."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from service.domain.allocation import COOL_DOWN_S, Demand, allocate, grant, ranked, why_waiting


def demand(
    name: str, *, low: int = 1, high: int = 1, priority: int = 50, granted: int = 0, present: int = 0, each: int = 1
) -> Demand:
    return Demand(
        job_id=name, order=name, priority=priority, min=low, max=high, slots_each=each, granted=granted, present=present
    )


@st.composite
def mixes(draw: st.DrawFn) -> tuple[list[Demand], int]:
    slots = draw(st.integers(0, 12))
    demands = []
    for index in range(draw(st.integers(0, 6))):
        low = draw(st.integers(1, 4))
        high = draw(st.integers(low, 8))
        demands.append(
            demand(f"j{index}", low=low, high=high, priority=draw(st.integers(0, 3)), each=draw(st.integers(1, 2)))
        )
    return demands, slots


def used(target: dict[str, int], demands: list[Demand]) -> int:
    return sum(target[each.job_id] * each.slots_each for each in demands)


@given(mix=mixes())
def test_never_more_than_there_is_and_each_whole_or_not_at_all(mix: tuple[list[Demand], int]) -> None:
    demands, slots = mix
    target = allocate(demands, slots=slots)
    assert used(target, demands) <= slots
    assert all(target[d.job_id] == 0 or d.min <= target[d.job_id] <= d.max for d in demands)


@given(mix=mixes())
def test_no_slot_is_idle_that_a_started_job_could_use(mix: tuple[list[Demand], int]) -> None:
    demands, slots = mix
    target = allocate(demands, slots=slots)
    left = slots - used(target, demands)
    assert all(d.slots_each > left for d in demands if 0 < target[d.job_id] < d.max)


@given(mix=mixes())
def test_a_job_is_stopped_only_when_those_before_it_leave_too_little(mix: tuple[list[Demand], int]) -> None:
    """Lower jobs shrink in place first: what stops a job are minima, never somebody's surplus."""
    demands, slots = mix
    target = allocate(demands, slots=slots)
    left = slots
    for each in ranked(demands):
        assert (target[each.job_id] > 0) == (each.min * each.slots_each <= left)
        left -= each.min * each.slots_each if target[each.job_id] else 0


@given(mix=mixes(), data=st.data())
def test_raising_a_priority_never_takes_workers_away(mix: tuple[list[Demand], int], data: st.DataObject) -> None:
    demands, slots = mix
    demands = [
        replace(each, granted=data.draw(st.integers(0, each.max)), scaling=data.draw(st.sampled_from([0.0, 0.5, 1.0])))
        for each in demands
    ]
    before = allocate(demands, slots=slots)
    for index, each in enumerate(demands):
        raised = [*demands[:index], replace(each, priority=each.priority + 5), *demands[index + 1 :]]
        assert allocate(raised, slots=slots)[each.job_id] >= before[each.job_id]


@given(mix=mixes(), rounds=st.integers(3, 8))
def test_nothing_changes_once_everything_was_given_and_nothing_changes_around(
    mix: tuple[list[Demand], int], rounds: int
) -> None:
    demands, slots = mix
    history = []
    for _ in range(rounds):
        granted = grant(demands, allocate(demands, slots=slots), slots=slots)
        demands = [replace(d, granted=granted[d.job_id], present=granted[d.job_id]) for d in demands]
        history.append(granted)
    assert all(later == history[-1] for later in history[-(rounds - 2) :])


@given(
    mix=mixes(),
    events=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 8), st.integers(0, 3), st.integers(0, 3)), max_size=25),
)
def test_live_workers_never_exceed_the_slots_whatever_comes_and_goes(
    mix: tuple[list[Demand], int], events: list[tuple[int, int, int, int]]
) -> None:
    """Workers leave late: a job may hold what it no longer is granted for as long as it likes."""
    demands, slots = mix
    for index, high, priority, laggard in events:
        granted = grant(demands, allocate(demands, slots=slots), slots=slots)
        moved = []
        for number, each in enumerate(demands):
            to = granted[each.job_id]
            # A shrinking job is slow to lose workers, a growing one may have them at once.
            present = max(each.present, to) if number == laggard else to
            moved.append(replace(each, granted=to, present=present))
        demands = [
            replace(d, max=max(d.min, high), priority=priority) if number == index else d
            for number, d in enumerate(moved)
        ]
        assert sum(d.present * d.slots_each for d in demands) <= slots


def test_a_slot_is_given_only_when_it_is_free() -> None:
    low, high = demand("low", high=4, priority=1, granted=4, present=4), demand("high", low=2, high=2, priority=9)
    target = allocate([low, high], slots=4)
    assert target == {"low": 2, "high": 2}
    assert grant([low, high], target, slots=4) == {"low": 2, "high": 0}
    shrunk = replace(low, granted=2, present=3)
    assert grant([shrunk, high], target, slots=4) == {"low": 2, "high": 0}
    assert grant([replace(shrunk, present=2), high], target, slots=4) == {"low": 2, "high": 2}


def test_slots_of_a_job_that_still_leaves_are_not_free() -> None:
    new = demand("new", low=3, high=3)
    assert grant([new], allocate([new], slots=4), slots=4, held_by_others=2) == {"new": 0}


def test_equals_do_not_displace_each_other() -> None:
    running, newcomer = demand("b", low=3, high=3, granted=3, present=3), demand("a", low=3, high=3)
    assert allocate([newcomer, running], slots=4) == {"a": 0, "b": 3}


def test_the_surplus_is_shared_one_by_one() -> None:
    assert allocate([demand("a", high=8), demand("b", high=8), demand("c", high=1)], slots=8) == {
        "a": 4,
        "b": 3,
        "c": 1,
    }


def test_who_waits_is_told_the_numbers() -> None:
    busy, waiting = demand("a", low=3, high=3, granted=3, present=3), demand("b", low=2, high=2)
    facts = {"slots": 4, "kind": "cpu", "held_by_others": 0}
    assert why_waiting(waiting, [busy, waiting], **facts) == (  # type: ignore[arg-type]
        "Waiting for 2 cpu slots: 1 of 4 are free, 3 are held by 1 other jobs (its priority is 50)"
    )


def test_who_can_never_start_is_told_what_to_do() -> None:
    big = demand("a", low=8, high=8)
    said = why_waiting(big, [big], slots=4, kind="gpu", held_by_others=0)
    assert "Needs 8 gpu slots" in said
    assert "the cluster has 4 in all" in said
    assert "none" in why_waiting(big, [big], slots=0, kind="gpu", held_by_others=0)


def test_the_surplus_goes_where_it_speeds_up_most() -> None:
    well, badly = demand("well", high=8), replace(demand("badly", high=8), scaling=0.2)
    assert allocate([well, badly], slots=8) == {"well": 7, "badly": 1}
    assert allocate([well, replace(badly, scaling=1.0)], slots=8) == {"well": 4, "badly": 4}
    # Slots that nobody else wants are used, whatever they bring.
    assert allocate([replace(badly, scaling=0.0)], slots=8) == {"badly": 8}


def test_a_worker_moves_only_where_it_adds_clearly_more() -> None:
    one, other = demand("one", high=4, granted=3), demand("other", high=4, granted=1)
    assert allocate([one, other], slots=4) == {"one": 2, "other": 2}
    nearly = replace(one, granted=2, scaling=0.9), replace(other, granted=2)
    assert allocate(nearly, slots=4) == {"one": 2, "other": 2}


def test_who_has_just_shrunk_does_not_grow_again_at_once() -> None:
    shrunk = replace(demand("a", high=4, granted=2), shrunk_for_s=COOL_DOWN_S - 1)
    assert allocate([shrunk], slots=4) == {"a": 2}
    assert allocate([replace(shrunk, shrunk_for_s=COOL_DOWN_S)], slots=4) == {"a": 4}
    assert allocate([shrunk, demand("b", priority=60)], slots=2) == {"a": 1, "b": 1}


def test_waiting_counts_like_priority() -> None:
    long, new = replace(demand("z", priority=10), points=41.0), demand("a", priority=50)
    assert allocate([long, new], slots=1) == {"z": 1, "a": 0}
