"""The service's end of the wire: facts once, orders level-triggered, tokens of one attempt, fencing."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from service.domain.errors import AttemptOver, AttemptTokenWrong, RequestRefused
from service.domain.job import JobState
from service.domain.wire import CheckpointReport, EventReport, Fact, Heartbeat, LogLine, Sample
from tests.fakes.control_plane import ControlPlane


def event(plane: ControlPlane, kind: str, **payload: Any) -> Fact:
    report = EventReport(kind=kind, step=1, generation=1, at=plane.clock.now(), payload=payload)
    return Fact(event=report)


def loss(plane: ControlPlane, step: int, value: float, *, generation: int = 1) -> Fact:
    return Fact(samples=(Sample(name="loss", step=step, generation=generation, value=value, at=plane.clock.now()),))


def memory(plane: ControlPlane, *, generation: int = 1, **kinds: float) -> Fact:
    at = plane.clock.now()
    facts = (
        Sample(name=f"mem_{kind}_bytes", rank=0, step=1, generation=generation, value=value, at=at)
        for kind, value in kinds.items()
    )
    return Fact(samples=tuple(facts))


def checkpoint(plane: ControlPlane, step: int, **fields: Any) -> Fact:
    facts: dict[str, Any] = {"uri": f"/c/{step}", "size_bytes": 5, "files": 1, "duration_s": 0.1}
    return Fact(checkpoint=CheckpointReport(step=step, at=plane.clock.now(), **{**facts, **fields}))


async def test_the_brief_says_what_a_controller_needs(plane: ControlPlane) -> None:
    job, controller = await plane.started(workers=2)
    brief = await plane.attempts.brief(controller.attempt_id, controller.token)
    assert (brief.job_id, brief.attempt_number, brief.workers, brief.spec) == (job.id, 1, 2, job.spec)
    assert (brief.checkpoint_uri, brief.ray_address) == ("/nowhere/checkpoints", "127.0.0.1:1")
    assert brief.lost is None


async def test_the_cluster_says_who_works_and_who_keeps_the_copy_of_whose_shard(plane: ControlPlane) -> None:
    job, controller = await plane.running(workers=3)
    (use,) = (await plane.cluster.view()).used
    assert [(member.rank, member.buddy) for member in use.members] == [(0, 1), (1, 2), (2, 0)]
    assert use.members == await plane.jobs.workers(job.id)
    await controller.end("failed", cause="machine")
    assert [use.members for use in (await plane.cluster.view()).used] in ([], [()])


@pytest.mark.parametrize("token", ["", "secret-999", "\x00", "\ud800"])
async def test_a_wrong_token_learns_nothing(plane: ControlPlane, token: str) -> None:
    _, controller = await plane.started()
    controller.token = token
    with pytest.raises(AttemptTokenWrong):
        await controller.beat("running")
    with pytest.raises(AttemptTokenWrong):
        await plane.attempts.brief(controller.attempt_id, token)


async def test_a_token_is_good_for_its_own_attempt_alone(plane: ControlPlane) -> None:
    _, first = await plane.started()
    _, second = await plane.started()
    first.token = second.token
    with pytest.raises(AttemptTokenWrong):
        await first.beat("running")


async def test_the_first_step_makes_the_job_run(plane: ControlPlane) -> None:
    job, controller = await plane.started(workers=2)
    await controller.beat("starting")
    assert (await plane.jobs.get(job.id)).state is JobState.STARTING
    await controller.beat("running", step=1, workers=2)
    seen = await plane.jobs.get(job.id)
    assert (seen.state, seen.progress.step, seen.progress.workers) == (JobState.RUNNING, 1, 2)
    assert await plane.kinds(job.id) == ["submitted", "launched", "started"]


async def test_a_new_attempt_that_knows_no_step_yet_does_not_take_the_job_back_to_the_first(
    plane: ControlPlane,
) -> None:
    job, controller = await plane.running()
    await controller.beat("running", step=40, workers=1)
    controller.exit()
    await plane.tick(5)
    await plane.tick(5)
    await plane.controller(await plane.jobs.get(job.id)).beat("starting", step=0)
    assert (await plane.jobs.get(job.id)).progress.step == 40


async def test_phases_move_the_job_through_a_resize_and_a_recovery(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    for phase, state in (
        ("resizing", JobState.RESIZING),
        ("running", JobState.RUNNING),
        ("recovering", JobState.RECOVERING),
        ("resizing", JobState.RESIZING),
        ("running", JobState.RUNNING),
    ):
        await controller.beat(phase, step=2, workers=1)  # type: ignore[arg-type]
        assert (await plane.jobs.get(job.id)).state is state


async def test_a_late_heartbeat_changes_nothing_of_the_present_and_its_facts_count(plane: ControlPlane) -> None:
    job, controller = await plane.running(workers=2)
    await controller.beat("running", step=9, workers=2, generation=2)
    await controller.beat("resizing", step=5, workers=1, generation=1, facts=(event(plane, "resized"),))
    seen, attempt = await plane.jobs.get(job.id), await plane.attempt(controller.attempt_id)
    assert (seen.state, seen.progress.step, seen.progress.generation) == (JobState.RUNNING, 9, 2)
    assert (seen.progress.workers, attempt.phase, len(attempt.workers)) == (2, "running", 2)
    assert "resized" in await plane.kinds(job.id)
    await controller.beat("running", step=8, workers=2, generation=2)
    assert (await plane.jobs.get(job.id)).progress.step == 9


async def test_a_generation_that_goes_on_from_a_checkpoint_takes_the_step_back(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    await controller.beat("running", step=9, workers=1, generation=1)
    await controller.beat("recovering", step=9, workers=1, generation=2)
    await controller.beat("running", step=4, workers=1, generation=2)
    seen = await plane.jobs.get(job.id)
    assert (seen.state, seen.progress.step) == (JobState.RUNNING, 4)


async def test_facts_are_applied_once_though_the_message_comes_again(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    facts = (event(plane, "resized", to=2), loss(plane, 1, 5.0), Fact(logs=(LogLine(at=plane.clock.now(), text="x"),)))
    controller.facts_from = 0
    await controller.beat("running", step=2, workers=1, facts=facts)
    controller.facts_from = 0
    orders = await controller.beat("running", step=2, workers=1, facts=(*facts, event(plane, "resized", to=3)))
    assert orders.acknowledged == 4
    resized = [each for each in await plane.jobs.events(job.id) if each.kind == "resized"]
    assert [each.payload["to"] for each in resized] == [2, 3]
    async with plane.database.read() as work:
        assert len(await work.logs.after(job.id, rank=None, after=0, limit=10)) == 1


async def test_a_payload_is_made_plain_and_short(plane: ControlPlane) -> None:
    """The timeline goes out as JSON: no NaN, no bottomless value, no trace of megabytes."""
    job, controller = await plane.running()
    deep: Any = "bottom"
    for _ in range(30):
        deep = [deep]
    fact = event(plane, "odd", nan=float("nan"), text="x" * 10**6, many=list(range(10**4)), deep=deep, big=2**70)
    await controller.beat("running", step=2, workers=1, facts=(fact,))
    payload = (await plane.jobs.events(job.id))[-1].payload
    assert (payload["nan"], payload["big"]) == (None, str(2**70))
    assert len(json.dumps(payload, allow_nan=False)) < 20_000


@pytest.mark.parametrize("ahead_s", [-30.0, 30.0])
async def test_a_controller_s_clock_takes_the_history_neither_back_nor_ahead(
    plane: ControlPlane, ahead_s: float
) -> None:
    """ "running" is told by our clock when its heartbeat has come, and what the recovery cost by the controller's: a
    heartbeat that took long, or a clock that is behind, would tell it as before."""
    job, controller = await plane.running()
    await controller.beat("recovering", step=1, workers=1, generation=2)
    plane.clock.pass_s(5)
    await controller.beat("running", step=1, workers=1, generation=2)
    at = plane.clock.now() + timedelta(seconds=ahead_s)
    facts = (
        Fact(event=EventReport(kind="recovered", step=1, generation=2, at=at)),
        Fact(checkpoint=CheckpointReport(step=1, uri="/c/1", size_bytes=5, files=1, duration_s=0.1, at=at)),
    )
    await controller.beat("running", step=2, workers=1, generation=2, facts=facts)
    found = await plane.jobs.events(job.id)
    assert [event.kind for event in found[-3:]] == ["running", "recovered", "checkpoint_saved"]
    assert [event.at for event in found[-3:]] == [plane.clock.now()] * 3
    assert found[-1].message == "Checkpoint of step 1 saved: 0.0 MB, 1 file, in 0.10 s"


async def test_a_gap_in_the_facts_is_accepted(plane: ControlPlane) -> None:
    """A controller that was cut off for long has dropped some: what is there is taken."""
    job, controller = await plane.running()
    controller.facts_from = 40
    orders = await controller.beat("running", step=2, workers=1, facts=(event(plane, "resized"),))
    assert orders.acknowledged == 41
    assert "resized" in await plane.kinds(job.id)


async def test_the_newest_values_show_on_the_job(plane: ControlPlane) -> None:
    job, controller = await plane.running()

    def memory(rank: int, value: float) -> Sample:
        return Sample(name="mem_params_bytes", rank=rank, step=2, generation=1, value=value, at=plane.clock.now())

    facts = (loss(plane, 2, 3.0), loss(plane, 1, 4.0), Fact(samples=(memory(0, 10), memory(1, 30), memory(2, 20))))
    await controller.beat("running", step=2, workers=1, facts=facts)
    seen = await plane.jobs.get(job.id)
    by_rank = {"0": {"params": 10}, "1": {"params": 30}, "2": {"params": 20}}
    assert (seen.progress.loss, seen.progress.memory) == (3.0, by_rank)
    await controller.beat("running", step=3, workers=1, facts=(loss(plane, 3, float("nan")),))
    assert (await plane.jobs.get(job.id)).progress.loss is None


async def test_a_later_attempt_s_generations_supersede_the_earlier_ones(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    await controller.beat("running", step=5, workers=1, generation=3, facts=(loss(plane, 5, 1.0, generation=3),))
    controller.exit()
    await plane.tick(5)
    await plane.tick(5)
    again = plane.controller(await plane.jobs.get(job.id))
    await again.beat("running", step=5, workers=1, generation=1, facts=(loss(plane, 5, 2.0),))
    async with plane.database.read() as work:
        (series,) = await work.samples.series(job.id, names=["loss"], points=10, from_step=0)
    assert [(point.value, point.generation) for point in series.points] == [(2.0, 4)]
    assert (await plane.jobs.get(job.id)).progress.generation == 4


async def test_orders_follow_the_job_and_not_the_history(plane: ControlPlane) -> None:
    job, controller = await plane.running(workers={"min": 1, "max": 4})
    assert (await controller.beat("running", step=1, workers=4)).workers == 4
    for wanted in (2, 1, 3):
        await plane.jobs.scale(job.id, wanted)
    await plane.tick()
    orders = await controller.beat("running", step=2, workers=4)
    assert (orders.workers, orders.action) == (3, "run")


async def test_a_checkpoint_request_is_sent_until_a_checkpoint_answers_it(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    request = await plane.checkpoints.request(job.id)
    assert await plane.checkpoints.request(job.id) == request
    assert (await controller.beat("running", step=2, workers=1)).checkpoint_request == request.id
    assert (await controller.beat("running", step=3, workers=1)).checkpoint_request == request.id
    orders = await controller.beat("running", step=4, workers=1, facts=(checkpoint(plane, 4, request_id=request.id),))
    assert orders.checkpoint_request is None
    assert [record.step for record in await plane.checkpoints.list(job.id)] == [4]


async def test_a_removed_checkpoint_leaves_the_list(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    facts = (checkpoint(plane, 4), checkpoint(plane, 8), checkpoint(plane, 4, removed=True))
    await controller.beat("running", step=8, workers=1, facts=facts)
    assert [record.step for record in await plane.checkpoints.list(job.id)] == [8]


async def test_what_an_ended_attempt_says_changes_nothing(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    await controller.end("succeeded")
    for phase in ("running", "ended"):
        with pytest.raises(AttemptOver):
            await controller.beat(phase, step=99, facts=(event(plane, "resized"),))  # type: ignore[arg-type]
    seen = await plane.jobs.get(job.id)
    assert (seen.state, seen.progress.step) == (JobState.SUCCEEDED, 10)
    assert "resized" not in await plane.kinds(job.id)
    with pytest.raises(AttemptOver):
        await plane.attempts.brief(controller.attempt_id, controller.token)


async def test_an_attempt_of_a_deleted_job_is_over(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    await controller.end("succeeded")
    await plane.jobs.delete(job.id)
    with pytest.raises(AttemptOver):
        await controller.beat("ended", step=10)


async def test_an_attempt_that_was_replaced_is_fenced(plane: ControlPlane) -> None:
    """A controller that was stopped, given up as gone and replaced, wakes up: it may not even publish a checkpoint."""
    job, old = await plane.running()
    old.exit()
    await plane.tick(5)
    await plane.tick(5)
    assert (await plane.jobs.get(job.id)).attempt == 2
    with pytest.raises(AttemptOver):
        await old.beat("running", step=50, workers=1, facts=(checkpoint(plane, 50),))
    assert await plane.checkpoints.list(job.id) == ()


@pytest.mark.parametrize("change", [{"protocol": 2}, {"attempt_id": "another"}, {"step": 2**70}, {"generation": -1}])
async def test_a_heartbeat_that_cannot_be_is_refused(plane: ControlPlane, change: dict[str, Any]) -> None:
    job, controller = await plane.started()
    facts: dict[str, Any] = {
        "job_id": job.id,
        "attempt_id": controller.attempt_id,
        "phase": "running",
        "step": 1,
        "generation": 1,
        "world_size": 1,
        "at": plane.clock.now(),
    }
    with pytest.raises(RequestRefused):
        await plane.attempts.heartbeat(controller.attempt_id, controller.token, Heartbeat(**{**facts, **change}))


@pytest.mark.parametrize(
    ("result", "cause", "state"),
    [
        ("succeeded", None, JobState.SUCCEEDED),
        ("failed", "user", JobState.FAILED),
        ("failed", "machine", JobState.RECOVERING),
        ("failed", "system", JobState.RECOVERING),
        ("failed", None, JobState.RECOVERING),
        ("superseded", None, JobState.QUEUED),
        ("paused", None, JobState.QUEUED),
        ("cancelled", None, JobState.RECOVERING),
    ],
)
async def test_how_an_attempt_ends_decides_where_its_job_goes(
    plane: ControlPlane, result: str, cause: str | None, state: JobState
) -> None:
    job, controller = await plane.running()
    await controller.end(result, cause=cause, reason="why")
    assert (await plane.jobs.get(job.id)).state is state


async def test_what_an_attempt_waits_for_stands_behind_the_reason_while_it_waits(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    before = (await plane.jobs.get(job.id)).reason
    for waited_s in (10, 20):
        note = f"waiting for 1 more worker for {waited_s} s: the cluster has no free slot with gpu: 1"
        await controller.beat("running", step=2, workers=1, note=note)
        assert (await plane.jobs.get(job.id)).reason == f"{before}; {note}"
    await controller.beat("running", step=3, workers=1)
    assert (await plane.jobs.get(job.id)).reason == before


@pytest.mark.parametrize("result", ["failed", "cancelled", "paused", "superseded"])
async def test_a_cancel_is_honoured_however_the_attempt_ends(plane: ControlPlane, result: str) -> None:
    job, controller = await plane.running()
    await plane.jobs.cancel(job.id)
    assert (await controller.beat("running", step=2, workers=1)).action == "cancel"
    await controller.end(result, cause="user" if result == "failed" else None)
    assert (await plane.jobs.get(job.id)).state is JobState.CANCELLED


async def test_a_job_that_was_done_before_it_heard_of_the_cancel_succeeded(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    await plane.jobs.cancel(job.id)
    await controller.end("succeeded")
    assert (await plane.jobs.get(job.id)).state is JobState.SUCCEEDED


def test_a_time_without_an_offset_is_refused_at_the_wire() -> None:
    with pytest.raises(ValidationError, match="timezone"):
        LogLine.model_validate({"at": "2026-01-01T00:00:00", "text": "x"})


# ---- memory against the plan -----------------------------------------------------------------------------------------


async def test_a_kind_that_is_over_a_tenth_off_the_plan_is_told_once_in_each_generation(plane: ControlPlane) -> None:
    job, controller = await plane.running(workers=2)
    figures = {"params": 9e6, "predicted_params": 9.5e6, "activations_peak": 30e6, "predicted_activations_peak": 20e6}
    await controller.beat("running", facts=(memory(plane, **figures),), step=2, workers=2)
    await controller.beat("running", facts=(memory(plane, params=9e6, activations_peak=31e6),), step=3, workers=2)
    (told,) = [event for event in await plane.jobs.events(job.id) if event.kind == "memory_off_plan"]
    assert told.payload == {"activations_peak": {"measured_bytes": 30_000_000, "predicted_bytes": 20_000_000}}
    assert "activations_peak 28.6 MiB instead of 19.1" in told.message
    await controller.beat("running", facts=(memory(plane, generation=2, **figures),), step=4, workers=1, generation=2)
    assert (await plane.kinds(job.id)).count("memory_off_plan") == 2


@pytest.mark.parametrize(
    "figures",
    [
        {"params": 9e6, "predicted_params": 9.8e6},
        {"gathered_peak": 0, "predicted_gathered_peak": 1e6},
        {"predicted_grads": 5e9},
        {"grads": 5e9},
    ],
)
async def test_what_is_near_the_plan_or_known_from_one_side_alone_is_no_event(
    plane: ControlPlane, figures: dict[str, float]
) -> None:
    job, controller = await plane.running(workers=1)
    await controller.beat("running", facts=(memory(plane, **figures),), step=2, workers=1)
    assert "memory_off_plan" not in await plane.kinds(job.id)
