"""What a tick does, and what it must not do: nothing accepted is lost, nothing runs twice, unreachable is not dead."""

from __future__ import annotations

import pytest

from service.domain.attempt import FAILURE_BUDGET
from service.domain.errors import JobNotFound
from service.domain.job import JobState
from service.domain.wire import LostAttempt
from service.ledger import RECONCILE, state_data
from service.ports import LaunchOrder
from service.reconciler import TICK_LIMIT_S, TOLD_AT_ONCE
from tests.fakes.control_plane import ControlPlane


async def test_a_queued_job_is_launched_once(plane: ControlPlane) -> None:
    job = await plane.submit(workers=2)
    for _ in range(3):
        await plane.tick()
    seen = await plane.jobs.get(job.id)
    assert (seen.state, seen.granted, seen.attempt) == (JobState.STARTING, 2, 1)
    assert [order.job_id for order in plane.launcher.orders] == [job.id]


async def test_a_job_waits_for_its_minimum_and_is_told_the_numbers(plane: ControlPlane) -> None:
    await plane.running(workers=3)
    waiting = await plane.submit(workers=2)
    await plane.tick()
    seen = await plane.jobs.get(waiting.id)
    assert seen.state is JobState.QUEUED
    assert seen.reason.startswith("Waiting for 2 cpu slots: 1 of 4 are free, 3 are held by 1 other job")


async def test_slots_are_given_on_only_when_the_process_has_gone(plane: ControlPlane) -> None:
    ended, controller = await plane.running(workers=4)
    waiting = await plane.submit(workers=4)
    await controller.end("succeeded")
    assert state_data(await plane.jobs.get(ended.id))["workers"]["actual"] == 0
    await plane.tick()
    assert (await plane.jobs.get(waiting.id)).state is JobState.QUEUED
    controller.exit()
    await plane.tick()
    assert (await plane.jobs.get(waiting.id)).state is JobState.STARTING


async def test_a_lower_job_shrinks_in_place_for_a_higher_one(plane: ControlPlane) -> None:
    low, controller = await plane.running(workers={"min": 1, "max": 4}, priority=10)
    high = await plane.submit(workers=2, priority=90)
    await plane.tick()
    assert (await controller.beat("running", step=2, workers=4)).workers == 2
    assert (await plane.jobs.get(high.id)).state is JobState.QUEUED
    await controller.beat("running", step=3, workers=2, generation=2)
    await plane.tick()
    assert (await plane.jobs.get(high.id)).state is JobState.STARTING
    assert (await plane.jobs.get(low.id)).state is JobState.RUNNING


async def test_workers_that_a_controller_was_told_to_have_hold_slots_until_it_is_told_otherwise(
    plane: ControlPlane,
) -> None:
    _, low = await plane.started(workers=2, priority=0)
    assert (await low.beat("starting", workers=1)).workers == 2
    first, second = await plane.submit(workers=1, priority=9), await plane.submit(workers=2, priority=6)
    await plane.tick()
    assert (await plane.jobs.get(first.id)).state is JobState.STARTING
    await plane.tick()
    assert (await plane.jobs.get(second.id)).state is JobState.QUEUED
    assert (await low.beat("starting", workers=1)).action == "leave"
    await plane.tick()
    assert (await plane.jobs.get(second.id)).state is JobState.STARTING


async def test_a_lower_job_that_cannot_shrink_leaves_and_goes_on_later(plane: ControlPlane) -> None:
    low, controller = await plane.running(workers=3, priority=10)
    high = await plane.submit(workers=3, priority=90)
    await plane.tick()
    assert (await controller.beat("running", step=2, workers=3)).action == "leave"
    await controller.end("superseded", step=2)
    controller.exit()
    await plane.tick()
    await plane.tick()
    assert (await plane.jobs.get(high.id)).state is JobState.STARTING
    assert (await plane.jobs.get(low.id)).state is JobState.QUEUED


async def test_an_unreachable_controller_is_never_replaced_while_its_process_may_live(plane: ControlPlane) -> None:
    job, _ = await plane.running()
    plane.launcher.reachable = False
    for _ in range(30):
        await plane.tick(10)
    plane.launcher.reachable = True
    await plane.tick(10)
    seen = await plane.jobs.get(job.id)
    assert (seen.state, seen.attempt, len(plane.launcher.orders)) == (JobState.RUNNING, 1, 1)


async def test_a_controller_that_is_gone_is_replaced_after_a_pause(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    plane.clock.pass_s(20)
    await controller.beat("running", step=1, workers=1)
    controller.exit()
    await plane.tick(5)
    seen = await plane.jobs.get(job.id)
    assert (seen.state, seen.failures) == (JobState.RECOVERING, 1)
    assert "its controller process is gone" in seen.reason
    assert len(plane.launcher.orders) == 1
    await plane.tick(5)
    assert len(plane.launcher.orders) == 2
    again = plane.controller(await plane.jobs.get(job.id))
    brief = await plane.attempts.brief(again.attempt_id, again.token)
    assert brief.lost == LostAttempt(step=1, stood_s=30.0), "counted from the last step, not from the last word"
    await again.beat("recovering", step=1)
    await again.beat("running", step=1, workers=1)
    assert (await plane.jobs.get(job.id)).state is JobState.RUNNING


async def test_the_budget_for_lost_attempts_ends_and_progress_gives_it_back(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    for round_number in range(2 * FAILURE_BUDGET):
        controller.exit()
        await plane.tick(70)
        await plane.tick(70)
        controller = plane.controller(await plane.jobs.get(job.id))
        await controller.beat("running", step=2 + round_number, workers=1)
    for _ in range(FAILURE_BUDGET + 1):
        controller.exit()
        await plane.tick(70)
        seen = await plane.jobs.get(job.id)
        if seen.terminal:
            break
        await plane.tick(70)
        controller = plane.controller(await plane.jobs.get(job.id))
    assert seen.state is JobState.FAILED
    assert f"{FAILURE_BUDGET + 1} attempts in a row were lost" in seen.reason


async def test_a_user_s_exception_is_not_tried_again(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    await controller.end("failed", cause="user", reason="ValueError: bad")
    controller.exit()
    for _ in range(3):
        await plane.tick(100)
    seen = await plane.jobs.get(job.id)
    assert (seen.state, seen.reason, len(plane.launcher.orders)) == (JobState.FAILED, "ValueError: bad", 1)


async def test_a_lost_attempt_of_a_job_that_was_to_stop_stops_it(plane: ControlPlane) -> None:
    pausing, first = await plane.running()
    cancelling, second = await plane.running()
    await plane.jobs.pause(pausing.id)
    await plane.jobs.cancel(cancelling.id)
    first.exit()
    second.exit()
    await plane.tick(5)
    assert (await plane.jobs.get(pausing.id)).state is JobState.PAUSED
    assert (await plane.jobs.get(cancelling.id)).state is JobState.CANCELLED


async def test_what_keeps_a_job_from_starting_is_told(plane: ControlPlane) -> None:
    job = await plane.submit()
    plane.launcher.reachable = False
    await plane.tick()
    assert (await plane.jobs.get(job.id)).reason.startswith("Cannot start yet: the Ray cluster does not answer")


async def test_a_job_that_is_cancelled_before_its_process_was_started_starts_none(plane: ControlPlane) -> None:
    job = await plane.submit()
    plane.launcher.reachable = False
    await plane.tick()
    assert (await plane.jobs.cancel(job.id)).state is JobState.CANCELLING
    plane.launcher.reachable = True
    await plane.tick()
    assert (await plane.jobs.get(job.id)).state is JobState.CANCELLED
    assert plane.launcher.orders == []


@pytest.mark.parametrize("slots", [4, 0], ids=["in its pause before the next try", "waiting for slots"])
async def test_a_recovering_job_that_nobody_drives_is_stopped_at_once(plane: ControlPlane, slots: int) -> None:
    cancelled, first = await plane.running(workers=2)
    paused, second = await plane.running(workers=2)
    first.exit()
    second.exit()
    await plane.tick(5)
    plane.capacity.slots = slots
    await plane.tick(0 if slots else 5)
    await plane.jobs.cancel(cancelled.id)
    await plane.jobs.pause(paused.id)
    await plane.tick()
    assert (await plane.jobs.get(cancelled.id)).state is JobState.CANCELLED
    assert (await plane.jobs.get(paused.id)).state is JobState.PAUSED
    assert len(plane.launcher.orders) == 2


async def test_a_pause_that_was_taken_back_before_a_tick_starts_the_job_again(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    controller.exit()
    await plane.tick(5)
    await plane.jobs.pause(job.id)
    await plane.jobs.resume(job.id)
    await plane.tick(5)
    await plane.tick()
    seen = await plane.jobs.get(job.id)
    assert (seen.state, seen.attempt) == (JobState.STARTING, 2)


async def test_a_deleted_job_holds_its_slots_until_its_process_is_gone(plane: ControlPlane) -> None:
    job, controller = await plane.running(workers=4)
    waiting = await plane.submit(workers=4)
    await controller.end("succeeded")
    await plane.jobs.delete(job.id)
    await plane.tick()
    assert (await plane.jobs.get(waiting.id)).state is JobState.QUEUED
    controller.exit()
    await plane.tick()
    assert (await plane.jobs.get(waiting.id)).state is JobState.STARTING


async def test_checkpoints_in_an_object_store_go_by_a_process_that_sees_it(plane: ControlPlane) -> None:
    job, controller = await plane.running(checkpoint={"uri": "s3://bucket/x"})
    await controller.end("succeeded")
    controller.exit()
    await plane.jobs.delete(job.id)
    plane.launcher.erasure_fails = True
    await plane.tick(20)
    await plane.tick(0.1)  # the one that failed is tried again, not at once
    assert plane.launcher.erasures == []
    await plane.tick()
    async with plane.database.read() as work:
        assert (await work.jobs.get(job.id, even_deleted=True)).deleted_at is not None
    await plane.tick()
    assert plane.launcher.erasures == [("s3://bucket/x", job.id)] * 2
    async with plane.database.read() as work:
        with pytest.raises(JobNotFound):
            await work.jobs.get(job.id, even_deleted=True)


async def test_a_recovering_job_without_slots_waits_and_says_so(plane: ControlPlane) -> None:
    job, controller = await plane.running(workers=4)
    controller.exit()
    await plane.tick(5)
    plane.capacity.slots = 2
    await plane.tick(5)
    seen = await plane.jobs.get(job.id)
    assert (seen.state, seen.granted) == (JobState.RECOVERING, 0)
    assert seen.reason.startswith("Needs 4 cpu slots for its minimum of 4 workers, but the cluster has 2 in all")
    plane.capacity.slots = 4
    await plane.tick()
    assert len(plane.launcher.orders) == 2


async def test_a_controller_that_does_not_cancel_is_ended_by_force(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    await plane.jobs.cancel(job.id)
    await plane.tick(10)
    assert plane.launcher.ended == []
    await plane.tick(25)
    assert plane.launcher.ended == [(controller.attempt_id, True)]
    await plane.tick()
    assert (await plane.jobs.get(job.id)).state is JobState.CANCELLED


async def test_a_process_that_stays_after_its_end_is_ended_by_force(plane: ControlPlane) -> None:
    _, controller = await plane.running()
    await controller.end("succeeded")
    await plane.tick(5)
    assert plane.launcher.ended == []
    await plane.tick(15)
    assert plane.launcher.ended == [(controller.attempt_id, True)]


# ---- leaving ---------------------------------------------------------------------------------------------------------


async def test_a_service_that_leaves_orders_every_attempt_to_leave_and_launches_nothing(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    plane.attempts.leaving.set()
    await plane.submit()
    await plane.tick()
    assert (await controller.beat("running", step=3, workers=1)).action == "leave"
    await controller.end("superseded", step=3)
    controller.exit()
    await plane.tick()
    assert (await plane.jobs.get(job.id)).state is JobState.QUEUED
    assert len(plane.launcher.orders) == 1


async def test_trouble_with_one_job_does_not_stop_the_others(plane: ControlPlane) -> None:
    plane.capacity.reachable = False
    job, _ = await plane.submit(), await plane.submit()
    with pytest.raises(Exception, match="does not answer"):
        await plane.tick()
    plane.capacity.reachable = True
    await plane.tick()
    assert (await plane.jobs.get(job.id)).state is JobState.STARTING
    assert len(plane.launcher.orders) == 2


async def test_a_launch_that_fails_as_none_should_is_told_held_back_and_holds_nobody_else_up(
    plane: ControlPlane,
) -> None:
    bad, good = await plane.submit(), await plane.submit()
    launch, tries = plane.launcher.launch, []

    async def launch_or_fail(order: LaunchOrder) -> None:
        if order.job_id == bad.id:
            tries.append(plane.clock.monotonic())
            raise PermissionError(13, "Permission denied", "attempt-1.log")
        await launch(order)

    plane.launcher.launch = launch_or_fail  # type: ignore[method-assign]
    for _ in range(8):
        await plane.tick()
    reason = (await plane.jobs.get(bad.id)).reason
    assert reason.startswith("Cannot start yet: PermissionError")
    assert "attempt-1.log" in reason
    assert [later - tries[0] for later in tries] == [0, 1, 3, 7]
    assert [order.job_id for order in plane.launcher.orders] == [good.id]
    plane.launcher.launch = launch  # type: ignore[method-assign]
    await plane.tick(10)
    assert [order.job_id for order in plane.launcher.orders] == [good.id, bad.id]


async def test_a_long_queue_is_told_why_it_waits_bit_by_bit_and_nobody_is_left_out(plane: ControlPlane) -> None:
    """A tick costs what has changed: not a write for each of thousands who wait."""
    await plane.submit(workers=4)
    waiting = [await plane.submit(workers=4) for _ in range(2 * TOLD_AT_ONCE + 10)]

    async def told() -> int:
        seen = [await plane.jobs.get(job.id) for job in waiting]
        return sum("Waiting for 4 cpu slots" in job.reason for job in seen)

    seen = []
    for _ in range(3):
        await plane.tick()
        seen.append(await told())
    assert seen == [TOLD_AT_ONCE, 2 * TOLD_AT_ONCE, len(waiting)]


async def test_a_tick_that_takes_long_leaves_the_rest_to_the_next_one_before_its_lease_runs_out(
    plane: ControlPlane,
) -> None:
    jobs = [await plane.submit(workers=1) for _ in range(4)]
    launch = plane.launcher.launch

    async def slowly(order: LaunchOrder) -> None:
        plane.clock.pass_s(TICK_LIMIT_S * 0.75)
        await launch(order)

    plane.launcher.launch = slowly  # type: ignore[method-assign]
    await plane.tick()
    assert len(plane.launcher.orders) == 2
    assert plane.bus.calls[-1] == RECONCILE
    await plane.tick()
    assert {order.job_id for order in plane.launcher.orders} == {job.id for job in jobs}


async def test_an_equal_that_comes_later_displaces_nobody_for_a_turn_and_then_has_its_own(plane: ControlPlane) -> None:
    first, controller = await plane.running(workers=4)
    second = await plane.submit(workers=4)
    actions = []
    for minute in range(12):
        await plane.tick(60.0)
        actions.append((await controller.beat("running", step=minute + 2, workers=4)).action)
    assert actions.index("leave") in (10, 11)
    assert set(actions[:10]) == {"run"}
    await controller.end("superseded")
    controller.exit()
    for _ in range(3):
        await plane.tick()
    assert [(await plane.jobs.get(job.id)).granted for job in (first, second)] == [0, 4]
