"""How far an autoscaler is counted on: it is asked for what jobs are granted, and not for ever."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from service.domain.cluster import ClusterFacts, Node
from service.domain.reach import RETRY_LIMIT_S, RETRY_S, Reach, looked_at
from tests.fakes.control_plane import ControlPlane

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE_S = 600.0


def facts(slots: int, most: int = 8) -> ClusterFacts:
    node = Node(id="n", address="a", alive=True, slots=slots)
    return ClusterFacts(nodes=(node,), slot_kind="gpu", max_slots=most, address="a")


def after(before: Reach, slots: int, *, granted: int, at_s: float) -> Reach:
    now = NOW + timedelta(seconds=at_s)
    return looked_at(before, facts(slots), granted=granted, patience_s=PATIENCE_S, now=now)


def usable(reach: Reach, slots: int, *, at_s: float) -> int:
    return reach.usable(facts(slots), now=NOW + timedelta(seconds=at_s))


def test_slots_that_may_come_are_given_away_until_they_have_not_come_for_too_long() -> None:
    reach = after(Reach(), 2, granted=6, at_s=0)
    reach = after(reach, 2, granted=6, at_s=PATIENCE_S - 1)
    assert usable(reach, 2, at_s=PATIENCE_S - 1) == 8
    reach = after(reach, 2, granted=6, at_s=PATIENCE_S)
    assert usable(reach, 2, at_s=PATIENCE_S) == 2
    assert "asked again in 5 minutes" in reach.note(facts(2), now=NOW + timedelta(seconds=PATIENCE_S))


def test_each_slot_that_comes_renews_the_patience() -> None:
    reach = after(Reach(), 0, granted=6, at_s=0)
    for number in range(1, 5):
        reach = after(reach, number, granted=6, at_s=number * (PATIENCE_S - 1))
    assert usable(reach, 4, at_s=4 * (PATIENCE_S - 1)) == 8


def test_a_broken_promise_is_tried_again_ever_more_rarely_and_forgotten_when_it_is_kept() -> None:
    reach, at_s, pauses = Reach(slots=2), 0.0, []
    for _ in range(6):
        reach = after(reach, 2, granted=6, at_s=at_s)
        reach = after(reach, 2, granted=6, at_s=at_s + PATIENCE_S)
        at_s += PATIENCE_S
        assert reach.disbelieved_until is not None
        pauses.append((reach.disbelieved_until - NOW).total_seconds() - at_s)
        reach = after(reach, 2, granted=2, at_s=at_s + 1)
        assert usable(reach, 2, at_s=at_s + pauses[-1] - 1) == 2
        at_s += pauses[-1]
        reach = after(reach, 2, granted=2, at_s=at_s)
        assert usable(reach, 2, at_s=at_s) == 8
    assert pauses == [RETRY_S, 2 * RETRY_S, 4 * RETRY_S, 8 * RETRY_S, RETRY_LIMIT_S, RETRY_LIMIT_S]
    assert after(reach, 3, granted=6, at_s=at_s).failures == 0


async def test_a_job_is_granted_what_an_empty_pool_may_become_and_never_more(plane: ControlPlane) -> None:
    plane.capacity.slots, plane.capacity.max_slots = 0, 3
    first, second = await plane.submit(workers={"min": 1, "max": 8}), await plane.submit(workers=2)
    await plane.tick()
    found = [await plane.jobs.get(each.id) for each in (first, second)]
    assert sum(job.granted for job in found) == 3
    assert [order.job_id for order in plane.launcher.orders] == [first.id, second.id]


async def test_where_nothing_comes_what_there_is_is_shared_and_the_reason_says_so(plane: ControlPlane) -> None:
    plane.capacity.slots, plane.capacity.max_slots = 1, 6
    low, controller = await plane.started(workers={"min": 1, "max": 4}, priority=10)
    await controller.beat("running", step=1, workers=1)
    high = await plane.submit(workers=2, priority=90)
    await plane.tick()
    assert (await plane.jobs.get(low.id)).granted == 4
    for _ in range(10):
        await plane.tick(plane.settings.launch_patience_s / 9)
        await controller.beat("running", step=2, workers=1)
    assert (await plane.jobs.get(low.id)).granted == 1, "nothing more is asked for"
    waits = await plane.jobs.get(high.id)
    assert waits.granted == 0
    assert "the autoscaler may reach 6 slots but has brought none" in waits.reason
