"""Submitting, scaling, pausing, cancelling, deleting: what users do, in every state."""

from __future__ import annotations

import asyncio

import pytest

from service import reconciler
from service.domain.errors import (
    IdempotencyKeyReused,
    IllegalTransition,
    JobNotFound,
    JobStillLive,
    RequestRefused,
    SpecRefused,
)
from service.domain.job import Intent, JobState
from tests.contract.values import sample
from tests.fakes.control_plane import TINY, ControlPlane


async def test_fifty_posts_with_one_key_make_one_job(plane: ControlPlane) -> None:
    made = await asyncio.gather(*(plane.jobs.submit(TINY, idempotency_key="k") for _ in range(50)))
    assert sum(each.created for each in made) == 1
    assert len({each.job.id for each in made if each.job}) == 1
    assert len((await plane.jobs.list()).items) == 1


async def test_a_key_with_another_body_is_a_conflict_that_names_the_job(plane: ControlPlane) -> None:
    first = await plane.jobs.submit(TINY, idempotency_key="k")
    assert first.job is not None
    with pytest.raises(IdempotencyKeyReused) as caught:
        await plane.jobs.submit({**TINY, "stage": 3}, idempotency_key="k")
    assert caught.value.fields["job_id"] == first.job.id
    assert len((await plane.jobs.list()).items) == 1


async def test_the_order_of_fields_does_not_make_another_body(plane: ControlPlane) -> None:
    first = await plane.jobs.submit({"model": "gpt-tiny", "stage": 1}, idempotency_key="k")
    again = await plane.jobs.submit({"stage": 1, "model": "gpt-tiny"}, idempotency_key="k")
    assert (again.created, again.job) == (False, first.job)


@pytest.mark.parametrize("key", ["", "x" * 201, "a\x00", "ä", "a\n"])
async def test_a_key_that_cannot_be_one_is_refused(plane: ControlPlane, key: str) -> None:
    with pytest.raises(RequestRefused):
        await plane.jobs.submit(TINY, idempotency_key=key)


async def test_a_dry_run_plans_and_stores_nothing(plane: ControlPlane) -> None:
    done = await plane.jobs.submit({**TINY, "stage": "auto"}, dry_run=True)
    assert (done.job, done.created) == (None, False)
    assert done.plan is not None
    assert done.plan.model == "gpt-tiny"
    assert "stage" in done.report
    assert (await plane.jobs.list()).items == ()


CONFIG = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 64,
}


async def test_a_plan_of_a_folder_has_the_bytes_that_its_config_tells(plane: ControlPlane) -> None:
    document = {"model": {"hf": "/m"}, "precision": "fp32", "stage": "auto", "training": {"seq_len": 32}}
    plane.files.present = {"/m/config.json"}
    plane.files.documents["/m/config.json"] = CONFIG
    plan = await plane.plans.plan(document, may_run_code=False)
    assert (plan.model, plan.numel) == ("/m", 2 * 300 * 16 + 2 * (3 * 16 * 24 + 768 + 32) + 16)
    whole = next(choice for choice in plan.choices if (choice.stage, choice.workers, choice.offload) == (0, 1, "none"))
    assert whole.states_bytes == 16 * plan.numel
    done = await plane.jobs.submit(document, dry_run=True)
    assert done.plan is not None
    assert done.report["stage"].startswith("stage 0: one worker")
    with pytest.raises(SpecRefused, match="longer than the model's context 64"):
        await plane.jobs.submit({**document, "training": {"seq_len": 65}})


@pytest.mark.parametrize("config", [None, {"model_type": "mamba"}, {**CONFIG, "vocab_size": True}])
async def test_a_model_whose_size_is_not_known_here_trains_and_its_plan_says_so(
    plane: ControlPlane, config: dict[str, object] | None
) -> None:
    document = {"model": {"hf": "/m"}, "stage": "auto"}
    plane.files.present = {"/m/config.json"}
    plane.files.documents |= {"/m/config.json": config} if config else {}
    plane.launcher.description = {"error": "not_described", "detail": "OSError: no weights"}
    with pytest.raises(SpecRefused, match="its size is not known here"):
        await plane.plans.plan(document, may_run_code=False)
    assert (await plane.jobs.submit(document, dry_run=True)).plan is None
    assert (await plane.jobs.submit(document)).created


async def test_the_key_of_a_deleted_job_is_free_again(plane: ControlPlane) -> None:
    first = await plane.jobs.submit(TINY, idempotency_key="k")
    assert first.job is not None
    await plane.jobs.cancel(first.job.id)
    await plane.jobs.delete(first.job.id)
    again = await plane.jobs.submit({**TINY, "stage": 3}, idempotency_key="k")
    assert again.created


async def test_files_are_looked_for_on_this_machine_alone_where_workers_run_on_it(plane: ControlPlane) -> None:
    document = {**TINY, "data": {"text": "/data/*.txt"}}
    with pytest.raises(SpecRefused, match="matches no file"):
        await plane.jobs.submit(document)
    plane.files.present.add("/data/*.txt")
    assert (await plane.jobs.submit(document)).created


async def test_a_refused_spec_stores_nothing_and_leaves_the_key_free(plane: ControlPlane) -> None:
    with pytest.raises(SpecRefused):
        await plane.jobs.submit({"model": "gpt-tiny", "stage": 7}, idempotency_key="k")
    assert (await plane.jobs.submit(TINY, idempotency_key="k")).created


async def test_a_new_job_is_queued_with_its_first_event(plane: ControlPlane) -> None:
    job = await plane.submit(workers={"min": 1, "max": 3})
    (event,) = await plane.jobs.events(job.id)
    assert (job.state, event.kind, event.payload) == (
        JobState.QUEUED,
        "submitted",
        {"workers": {"min": 1, "max": 3}},
    )


@pytest.mark.parametrize("limit", [0, -1, 201])
async def test_a_page_has_a_legal_size(plane: ControlPlane, limit: int) -> None:
    with pytest.raises(RequestRefused):
        await plane.jobs.list(limit=limit)


@pytest.mark.parametrize(("filters", "field"), [({"state": "sleeping"}, "state"), ({"cursor": "a'b\x00"}, "cursor")])
async def test_a_filter_that_cannot_match_is_refused(plane: ControlPlane, filters: dict[str, str], field: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        await plane.jobs.list(**filters)
    assert caught.value.problems[0].field == field


async def test_a_name_that_no_job_can_have_lists_nothing(plane: ControlPlane) -> None:
    await plane.submit(name="a")
    assert (await plane.jobs.list(name="a\x00\ud800")).items == ()
    assert len((await plane.jobs.list(name="a")).items) == 1


# ---- scale -----------------------------------------------------------------------------------------------------------


async def test_scaling_to_a_number_bounds_the_job_by_it(plane: ControlPlane) -> None:
    job = await plane.submit(workers={"min": 2, "max": 4})
    assert (await plane.jobs.scale(job.id, 3)).bounds.model_dump() == {"min": 2, "max": 3}
    assert (await plane.jobs.scale(job.id, 1)).bounds.model_dump() == {"min": 1, "max": 1}
    (_, first, second) = await plane.jobs.events(job.id)
    assert first.payload == {"from": {"min": 2, "max": 4}, "to": {"min": 2, "max": 3}}
    assert [first.message, second.message] == ["Scaled from 2-4 to 2-3 workers", "Scaled from 2-3 to 1 worker"]


async def test_scaling_to_what_is_already_wanted_changes_nothing(plane: ControlPlane) -> None:
    job = await plane.submit(workers=2)
    assert await plane.jobs.scale(job.id, 2) == job
    assert await plane.kinds(job.id) == ["submitted"]


async def test_an_ended_job_cannot_be_scaled(plane: ControlPlane) -> None:
    job = await plane.submit()
    await plane.jobs.cancel(job.id)
    with pytest.raises(IllegalTransition, match="is cancelled; scale is not possible"):
        await plane.jobs.scale(job.id, 2)


# ---- pause, resume, cancel, delete -----------------------------------------------------------------------------------


async def test_a_queued_job_is_paused_resumed_and_cancelled_at_once(plane: ControlPlane) -> None:
    job = await plane.submit()
    assert (await plane.jobs.pause(job.id)).state is JobState.PAUSED
    assert (await plane.jobs.resume(job.id)).state is JobState.QUEUED
    assert (await plane.jobs.cancel(job.id)).state is JobState.CANCELLED


async def test_a_running_job_is_told_and_not_just_marked(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    assert (await plane.jobs.pause(job.id)).state is JobState.PAUSING
    assert (await controller.beat("running", step=2, workers=1)).action == "pause"
    await controller.end("paused", step=3)
    paused = await plane.jobs.get(job.id)
    assert (paused.state, paused.reason) == (JobState.PAUSED, "Paused at step 3")


async def test_every_action_may_be_repeated(plane: ControlPlane) -> None:
    job, _ = await plane.running()
    assert (await plane.jobs.resume(job.id)).state is JobState.RUNNING
    first = await plane.jobs.pause(job.id)
    assert await plane.jobs.pause(job.id) == first
    first = await plane.jobs.cancel(job.id)
    assert await plane.jobs.cancel(job.id) == first


async def test_resuming_while_it_pauses_sends_it_back_to_the_queue_when_it_has_stopped(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    await plane.jobs.pause(job.id)
    assert (await plane.jobs.resume(job.id)).intent is Intent.RUN
    await controller.end("paused", step=3)
    assert (await plane.jobs.get(job.id)).state is JobState.QUEUED


async def test_resuming_before_the_pause_was_heard_just_goes_on(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    await plane.jobs.pause(job.id)
    await plane.jobs.resume(job.id)
    assert (await controller.beat("running", step=2, workers=1)).action == "run"
    assert (await plane.jobs.get(job.id)).state is JobState.RUNNING


async def test_a_job_that_ended_cannot_be_paused_resumed_or_cancelled(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    await controller.end("succeeded")
    for act in (plane.jobs.pause, plane.jobs.resume, plane.jobs.cancel):
        with pytest.raises(IllegalTransition, match="is succeeded"):
            await act(job.id)


async def test_a_job_that_is_being_cancelled_cannot_be_paused_or_resumed(plane: ControlPlane) -> None:
    job, _ = await plane.running()
    await plane.jobs.cancel(job.id)
    for act in (plane.jobs.pause, plane.jobs.resume):
        with pytest.raises(IllegalTransition, match="is cancelling"):
            await act(job.id)


async def test_a_live_job_cannot_be_deleted_and_an_ended_one_is_gone_at_once(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    with pytest.raises(JobStillLive):
        await plane.jobs.delete(job.id)
    await controller.end("succeeded")
    await plane.jobs.delete(job.id)
    with pytest.raises(JobNotFound):
        await plane.jobs.get(job.id)
    assert (await plane.jobs.list()).items == ()


async def test_checkpoints_and_rows_of_a_deleted_job_go_when_its_process_has_gone(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    await controller.end("succeeded")
    await plane.jobs.delete(job.id)
    await plane.tick()
    assert plane.files.removed == []
    controller.exit()
    await plane.tick()
    await plane.tick()
    assert plane.files.removed == [f"/nowhere/checkpoints/{job.id}", f"/nowhere/logs/{job.id}"]
    async with plane.database.read() as work:
        assert await work.jobs.open() == ()


async def test_what_a_deleted_job_said_goes_in_parts(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "REMOVED_AT_ONCE", 100)
    job, controller = await plane.running()
    await controller.end("succeeded")
    async with plane.database.write() as work:
        await work.samples.add(job.id, [sample(step, 1.0) for step in range(250)])
        await work.commit()
    await plane.jobs.delete(job.id)
    controller.exit()
    left = []
    for _ in range(4):
        await plane.tick()
        left.append((len(plane.database.shelves.samples), len(plane.database.shelves.jobs)))
    assert left == [(150, 1), (50, 1), (0, 0), (0, 0)]


# ---- what a reader sees ----------------------------------------------------------------------------------------------


async def test_a_silent_controller_shows_as_unreachable_for_so_many_seconds(plane: ControlPlane) -> None:
    job, _ = await plane.running()
    plane.clock.pass_s(90)
    seen = await plane.jobs.get(job.id)
    assert seen.state is JobState.RUNNING
    assert "unreachable for 90 s" in seen.reason


async def test_members_are_listed_by_rank_while_the_attempt_lives(plane: ControlPlane) -> None:
    job, controller = await plane.running(workers=3)
    assert [member.rank for member in await plane.jobs.workers(job.id)] == [0, 1, 2]
    await controller.end("succeeded")
    assert await plane.jobs.workers(job.id) == ()


async def test_stage_and_offload_may_change_at_any_time_within_what_is_legal(plane: ControlPlane) -> None:
    job, controller = await plane.running(workers=2)
    changed = await plane.jobs.scale(job.id, 3, stage=1)
    assert (changed.spec.stage, changed.bounds.max) == (1, 3)
    event = (await plane.jobs.events(job.id))[-1]
    assert (event.payload["from_stage"], event.payload["to_stage"]) == (job.spec.stage, 1)
    ordered = await controller.beat("running", step=3, workers=2)
    assert (ordered.arrangement.stage, ordered.arrangement.offload.optimizer) == (1, "none")
    changed = await plane.jobs.scale(job.id, None, offload="cpu")
    assert (changed.spec.stage, changed.spec.offload.optimizer, changed.bounds.max) == (1, "cpu", 3)
    with pytest.raises(SpecRefused, match="only stage 3 can offload"):
        await plane.jobs.scale(job.id, None, offload={"optimizer": "cpu", "params": "cpu"})
    assert await plane.jobs.scale(job.id, 3, stage=1) == changed
