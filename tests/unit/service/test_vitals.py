"""Who stands still, and whose memory is not as predicted."""

from __future__ import annotations

from dataclasses import replace

from service.domain.job import Intent, Job, JobState, Progress
from service.domain.vitals import Strides, measured_over_predicted
from service.domain.wire import EventReport, Fact
from tests.contract.values import job
from tests.fakes.control_plane import ControlPlane


def at(number: int, step: int, state: JobState = JobState.RUNNING) -> Job:
    return job(number, state=state, intent=Intent.RUN, progress=Progress(step=step))


def test_the_longest_without_a_step_is_told_and_a_step_ends_it() -> None:
    strides = Strides().seen([at(1, 5), at(2, 5)], now_s=100)
    strides = strides.seen([at(1, 6), at(2, 5)], now_s=130)
    assert strides.longest_s(now_s=140) == 40
    strides = strides.seen([at(1, 6), at(2, 6)], now_s=150)
    assert strides.longest_s(now_s=150) == 20


def test_a_job_that_is_not_to_run_does_not_stand_still() -> None:
    strides = Strides().seen([at(1, 5)], now_s=0)
    waiting = [at(1, 5, JobState.QUEUED), replace(at(2, 5), intent=Intent.PAUSE)]
    assert strides.seen(waiting, now_s=50).longest_s(now_s=50) == 0


def test_the_rank_that_holds_most_over_its_prediction_counts() -> None:
    memory = {
        "0": {"params": 50, "grads": 30, "process": 900, "predicted": 100},
        "1": {"params": 50, "optimizer": 100, "predicted": 100},
        "2": {"params": 900, "predicted": 0},
    }
    running = job(1, state=JobState.RUNNING, progress=Progress(memory=memory))
    assert measured_over_predicted([running]) == 1.5
    assert measured_over_predicted([replace(running, state=JobState.QUEUED)]) == 0


async def test_events_are_counted_once_however_often_they_are_told(plane: ControlPlane) -> None:
    _, controller = await plane.running(workers=2)
    kinds = ("recovered", "a word of the controller's own")
    facts = tuple(Fact(event=EventReport(kind=kind, at=plane.clock.now())) for kind in kinds)
    for _ in range(2):
        controller.facts_from = 0
        await controller.beat("running", step=2, workers=2, facts=facts)
    assert plane.attempts.tally["recovered"] == 1
    assert kinds[1] not in plane.attempts.tally
