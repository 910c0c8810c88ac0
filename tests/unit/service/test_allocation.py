"""Who gets how many workers: properties over all mixes of jobs, and the sentences for those who wait."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from service.domain.allocation import (
    COOL_DOWN_S,
    Crowd,
    Demand,
    Quotas,
    allocate,
    demand_of,
    grant,
    ranked,
    why_waiting,
)
from service.domain.job import JobState
from service.domain.standing import Standing, looked_at
from tests.contract.values import SPEC, job


def demand(
    name: str, *, low: int = 1, high: int = 1, priority: int = 50, granted: int = 0, present: int = 0, each: int = 1
) -> Demand:
    return Demand(
        job_id=name, order=name, priority=priority, min=low, max=high, slots_each=each, granted=granted, present=present
    )


@dataclass(frozen=True)
class Mix:
    """Jobs of three keys, of which some have a quota, and the slots there are."""

    demands: list[Demand]
    slots: int
    quotas: Quotas = field(default_factory=dict)

    def target(self) -> dict[str, int]:
        return allocate(self.demands, slots=self.slots, quotas=self.quotas)

    def granted(self) -> dict[str, int]:
        return grant(self.demands, self.target(), slots=self.slots, quotas=self.quotas)

    def used(self, target: dict[str, int], key: str | None = None) -> int:
        return sum(target[d.job_id] * d.slots_each for d in self.demands if key in (None, d.key_id))

    def room(self, target: dict[str, int], demand: Demand) -> int:
        """Slots that are left for this job."""
        left = self.slots - self.used(target)
        within = self.quotas.get(demand.key_id or "")
        return left if within is None else min(left, within - self.used(target, demand.key_id))


@st.composite
def mixes(draw: st.DrawFn) -> Mix:
    demands = []
    for index in range(draw(st.integers(0, 6))):
        low = draw(st.integers(1, 4))
        made = demand(
            f"j{index}",
            low=low,
            high=draw(st.integers(low, 8)),
            priority=draw(st.integers(0, 3)),
            each=draw(st.integers(1, 2)),
        )
        demands.append(replace(made, key_id=draw(st.sampled_from([None, "k", "l", "m"]))))
    quotas = draw(st.dictionaries(st.sampled_from(["k", "l"]), st.integers(0, 8)))
    return Mix(demands, draw(st.integers(0, 12)), quotas)


@given(mix=mixes())
def test_never_more_than_there_is_nor_than_a_quota_and_each_whole_or_not_at_all(mix: Mix) -> None:
    target = mix.target()
    assert mix.used(target) <= mix.slots
    assert all(mix.used(target, key) <= quota for key, quota in mix.quotas.items())
    assert all(target[d.job_id] == 0 or d.min <= target[d.job_id] <= d.max for d in mix.demands)


@given(mix=mixes())
def test_no_slot_is_idle_that_a_started_job_could_use(mix: Mix) -> None:
    target = mix.target()
    assert all(d.slots_each > mix.room(target, d) for d in mix.demands if 0 < target[d.job_id] < d.max)


@given(mix=mixes())
def test_a_job_is_stopped_only_when_those_before_it_leave_too_little(mix: Mix) -> None:
    """Lower jobs shrink in place first: what stops a job are minima, never somebody's surplus."""
    target, minima = mix.target(), dict.fromkeys((d.job_id for d in mix.demands), 0)
    for each in ranked(mix.demands):
        assert (target[each.job_id] > 0) == (each.min * each.slots_each <= mix.room(minima, each))
        minima[each.job_id] = each.min if target[each.job_id] else 0


@given(mix=mixes(), data=st.data())
def test_raising_a_priority_never_takes_workers_away(mix: Mix, data: st.DataObject) -> None:
    demands = [
        replace(each, granted=data.draw(st.integers(0, each.max)), scaling=data.draw(st.sampled_from([0.0, 0.5, 1.0])))
        for each in mix.demands
    ]
    before = replace(mix, demands=demands).target()
    for index, each in enumerate(demands):
        raised = [*demands[:index], replace(each, priority=each.priority + 5), *demands[index + 1 :]]
        assert replace(mix, demands=raised).target()[each.job_id] >= before[each.job_id]


@given(mix=mixes(), rounds=st.integers(3, 8))
def test_nothing_changes_once_everything_was_given_and_nothing_changes_around(mix: Mix, rounds: int) -> None:
    history = []
    for _ in range(rounds):
        granted = mix.granted()
        mix = replace(
            mix, demands=[replace(d, granted=granted[d.job_id], present=granted[d.job_id]) for d in mix.demands]
        )
        history.append(granted)
    assert all(later == history[-1] for later in history[-(rounds - 2) :])


@given(
    mix=mixes(),
    events=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 8), st.integers(0, 3), st.integers(0, 3)), max_size=25),
)
def test_live_workers_never_exceed_the_slots_or_a_quota_whatever_comes_and_goes(
    mix: Mix, events: list[tuple[int, int, int, int]]
) -> None:
    """Workers leave late: a job may hold what it no longer is granted for as long as it likes."""
    for index, high, priority, laggard in events:
        granted, moved = mix.granted(), []
        for number, each in enumerate(mix.demands):
            to = granted[each.job_id]
            # A shrinking job is slow to lose workers, a growing one may have them at once.
            present = max(each.present, to) if number == laggard else to
            moved.append(replace(each, granted=to, present=present))
        changed = [
            replace(d, max=max(d.min, high), priority=priority) if number == index else d
            for number, d in enumerate(moved)
        ]
        mix = replace(mix, demands=changed)
        present_now = {d.job_id: d.present for d in mix.demands}
        assert mix.used(present_now) <= mix.slots
        assert all(mix.used(present_now, key) <= quota for key, quota in mix.quotas.items())


@given(rivals=st.lists(st.integers(0, 100), min_size=1, max_size=4), low=st.integers(0, 100))
def test_nobody_starves_however_many_of_higher_priority_never_end(rivals: list[int], low: int) -> None:
    """One slot and jobs that would hold it for ever. A minute of waiting is a point and a turn is ten minutes: who
    waits has started once it has made up for the priority of the others and each of them has had its turns."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    jobs = [
        job(
            index + 1,
            spec=SPEC.model_copy(update={"priority": priority}),
            state=JobState.QUEUED,
            granted=0,
            since=now,
            created_at=now,
        )
        for index, priority in enumerate([*rivals, low])
    ]
    standings = {each.id: Standing() for each in jobs}
    for _ in range(100 + 15 * (len(jobs) + 1)):
        standings = {each.id: looked_at(standings[each.id], each, now=now) for each in jobs}
        demands = [demand_of(each, slot_kind="cpu", standing=standings[each.id], now=now) for each in jobs]
        demands = [replace(each, present=0) for each in demands]
        target = allocate(demands, slots=1)
        jobs = [
            replace(
                each,
                granted=target[each.id],
                since=each.since if (target[each.id] > 0) == (each.granted > 0) else now,
                state=JobState.RUNNING if target[each.id] else JobState.QUEUED,
            )
            for each in jobs
        ]
        if jobs[-1].granted:
            return
        now += timedelta(minutes=1)
    raise AssertionError(f"still waiting after {now:%H:%M}")


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
    waiting, crowd = demand("b", low=2, high=2), Crowd(held=3, holders=1)
    assert why_waiting(waiting, crowd, slots=4, kind="cpu") == (
        "Waiting for 2 cpu slots: 1 of 4 are free, 3 are held by 1 other job (this job's priority is 50)"
    )


def test_who_waits_for_the_quota_of_its_key_is_told_so() -> None:
    waiting, crowd = replace(demand("b", low=2, high=2), key_id="k"), Crowd(held=3, holders=1, by_key={"k": 3})
    assert why_waiting(waiting, crowd, slots=8, kind="cpu", quotas={"k": 4}) == (
        "Waiting for 2 cpu slots within the quota of its key: its other jobs hold 3 of the 4 slots that they may hold "
        "together"
    )
    assert "quota" not in why_waiting(waiting, crowd, slots=4, kind="cpu", quotas={"k": 5})


def test_who_can_never_start_is_told_what_to_do() -> None:
    big, nobody = demand("a", low=8, high=8), Crowd(held=0, holders=0)
    said = why_waiting(big, nobody, slots=4, kind="gpu")
    assert "Needs 8 gpu slots" in said
    assert "the cluster has 4 in all" in said
    assert "none" in why_waiting(big, nobody, slots=0, kind="gpu")


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
    long, new = replace(demand("z", priority=10), points=41), demand("a", priority=50)
    assert allocate([long, new], slots=1) == {"z": 1, "a": 0}
