"""What the controller decides when workers are lost: alone, in pairs, while a resize forms, while it is to pause."""

from __future__ import annotations

from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError, RayActorError

from service.domain.wire import LostAttempt, Outcome
from tests.unit.controller.troupe import Troupe, running
from workers.controller.ending import LOSSES
from workers.controller.group import why_dead
from workers.controller.progress import ANSWER_S
from workers.layout.interval import Interval
from workers.layout.layout import Piece
from workers.worker.messages import (
    Broken,
    Crashed,
    FromDisk,
    FromMembers,
    Holding,
    Inventory,
    Joined,
    Saved,
)


def lose_one(troupe: Troupe, *, step: int) -> None:
    """w2 dies; the others answer what they hold."""
    troupe.die("w2")
    troupe.turn()
    for hand in list(troupe.group):
        if hand.id in troupe.newest().members:
            troupe.report(hand.id, troupe.broken(hand.id, step=step))
    troupe.turn()


def test_a_lost_worker_of_a_replicated_state_costs_nothing_but_the_worker() -> None:
    troupe = running(workers=3, stage=0)
    lose_one(troupe, step=9)
    assert {worker for worker, _ in troupe.told("abort")} >= {"w1", "w3"}
    join = troupe.newest()
    assert (join.generation, join.members) == (2, ("w1", "w3"))
    assert join.origin == FromMembers(step=9, holders=("w1", "w3"))
    troupe.join(step=9, source="survivors")
    payload = dict(troupe.uplink.events)["recovered"]
    assert (payload["workers"], payload["from_step"], payload["redone_steps"]) == (2, 9, 0)
    assert "w4" in troupe.group, "a replacement is asked for"


def test_a_lost_shard_means_the_newest_checkpoint() -> None:
    troupe = running(workers=3, stage=3)
    lose_one(troupe, step=9)
    assert troupe.newest().origin == FromDisk()
    troupe.join(step=5, source="checkpoint")
    payload = dict(troupe.uplink.events)["recovered"]
    assert (payload["from"], payload["from_step"], payload["redone_steps"]) == ("checkpoint", 5, 4)


def test_steps_lost_by_a_generation_that_broke_at_once_are_told_by_the_next() -> None:
    troupe = running(workers=4, stage=3)
    lose_one(troupe, step=9)
    for worker in (join := troupe.newest()).members:
        joined = Joined(generation=join.generation, step=5, source="checkpoint", form_s=0.1, move_s=0.1, moved_bytes=4)
        troupe.report(worker, joined)
    troupe.turn()
    troupe.die("w3")
    troupe.turn()
    for worker in ("w1", "w4"):
        troupe.report(worker, troupe.broken(worker, step=5))
    troupe.turn()
    troupe.join(step=5, source="checkpoint")
    assert troupe.uplink.kinds().count("recovered") == 1
    assert dict(troupe.uplink.events)["recovered"]["redone_steps"] == 4


def test_mirrors_of_a_step_take_the_survivors_back_to_it() -> None:
    troupe = running(workers=3, stage=3)
    troupe.die("w2")
    troupe.turn()
    thirds = [Piece("t", Interval(first, first + 4)) for first in (0, 4, 8)]
    troupe.report("w1", troupe.broken("w1", step=9, mirrored=(Holding(step=7, pieces=(thirds[0],)),)))
    troupe.report("w3", troupe.broken("w3", step=9, mirrored=(Holding(step=7, pieces=(thirds[1], thirds[2])),)))
    troupe.turn()
    assert troupe.newest().origin == FromMembers(step=7, holders=("w1", "w3"))
    troupe.join(step=7, source="survivors")
    payload = dict(troupe.uplink.events)["recovered"]
    assert (payload["from"], payload["from_step"], payload["redone_steps"]) == ("survivors", 7, 2)


def buddies(troupe: Troupe) -> list[int | None]:
    """What the service is told, by rank."""
    return [worker.buddy for worker in troupe.uplink.shown.workers]


def test_the_service_is_told_whose_memory_keeps_the_copy_of_each_shard() -> None:
    troupe = running(workers=3, stage=3)
    assert buddies(troupe) == [1, 2, 0]
    lose_one(troupe, step=9)
    troupe.join(step=5, source="checkpoint")
    assert buddies(troupe) == [1, 0]


@pytest.mark.parametrize("fields", [{"stage": 0}, {"mirrors": "off"}, {"offload": "nvme"}, {"workers": 1}])
def test_nobody_is_a_buddy_where_no_shard_is_copied(fields: dict[str, Any]) -> None:
    assert set(buddies(running(**{"workers": 2, "stage": 3, **fields}))) == {None}


def test_nobody_keeps_copies_between_a_loss_and_the_next_generation() -> None:
    troupe = running(workers=3, stage=3)
    troupe.die("w2")
    troupe.turn()
    assert buddies(troupe) == [None, None]


def test_the_newest_step_of_the_survivors_wins() -> None:
    troupe = running(workers=3, stage=0)
    troupe.die("w2")
    troupe.turn()
    troupe.report("w1", troupe.broken("w1", step=9))
    troupe.report("w3", troupe.broken("w3", step=10))
    troupe.turn()
    assert troupe.newest().origin == FromMembers(step=10, holders=("w3",))


def test_survivors_below_the_minimum_wait_for_a_replacement() -> None:
    troupe = running(workers=2, minimum=2, stage=0)
    lose_one(troupe, step=3)
    assert troupe.newest().generation == 1
    assert troupe.uplink.shown.phase == "recovering"
    troupe.warm("w3")
    join = troupe.newest()
    assert set(join.members) == {"w1", "w3"}
    assert join.origin == FromMembers(step=3, holders=("w1",))


def test_a_member_that_broke_without_a_death_goes_on_with_the_others() -> None:
    troupe = running(workers=2, stage=3)
    troupe.report("w1", troupe.broken("w1", step=6))
    troupe.turn()
    asked = [worker for worker, args in troupe.told("order") if isinstance(args[0], Inventory)]
    assert asked == ["w2"]
    troupe.report("w2", troupe.broken("w2", step=6))
    troupe.turn()
    assert troupe.newest().origin == FromMembers(step=6, holders=("w1", "w2"))


def test_a_survivor_that_never_answers_is_taken_for_dead() -> None:
    troupe = running(workers=3, stage=0)
    troupe.steps(9)
    troupe.die("w2")
    troupe.turn()
    troupe.report("w1", troupe.broken("w1", step=9))
    troupe.turn()
    troupe.turn(after_s=ANSWER_S + 1)
    assert "w3" in troupe.group.ended
    assert troupe.newest().members == ("w1",)


def test_a_survivor_in_the_middle_of_a_long_step_is_given_the_time_of_one() -> None:
    troupe = running(workers=3, stage=0)
    troupe.steps(9, step_s=100.0)
    troupe.die("w2")
    troupe.turn()
    troupe.report("w1", troupe.broken("w1", step=9))
    troupe.turn(after_s=150)
    assert troupe.group.ended == []
    troupe.report("w3", troupe.broken("w3", step=9))
    troupe.turn()
    assert troupe.newest().members == ("w1", "w3")


def shrinking(*, workers: int, to: int, step: int) -> Troupe:
    """The smaller generation forms; nobody has joined it yet."""
    troupe = running(workers=workers, stage=3)
    troupe.order(workers=to)
    troupe.turn()
    troupe.stop(step=step)
    return troupe


def answer(troupe: Troupe, *workers: str, step: int) -> None:
    """Each still holds its even part of the generation before."""
    for number, worker in enumerate(workers):
        size = 12 // len(workers)
        piece = Piece("t", Interval(number * size, (number + 1) * size))
        holdings = (Holding(step=step, pieces=(piece,)),)
        generation = troupe.newest().generation
        troupe.report(
            worker, Broken(generation=generation, step=step, error="gone", holdings=holdings, whole={"t": 12})
        )
    troupe.turn()


def test_a_death_while_a_resize_forms_keeps_what_leavers_still_hold() -> None:
    troupe = shrinking(workers=4, to=2, step=8)
    resize = troupe.newest()
    victim, stayer = resize.members
    troupe.die(victim)
    troupe.turn()
    answer(troupe, stayer, *resize.leavers, step=8)
    join = troupe.newest()
    assert join.generation == 3
    assert join.origin == FromMembers(step=8, holders=(stayer, *resize.leavers))
    assert stayer in join.members
    assert set(join.members) | set(join.leavers) == {stayer, *resize.leavers}
    assert len(join.members) == 2, "one that was leaving takes the place of the lost one"


def test_the_death_of_a_leaver_while_it_hands_over_ends_the_forming() -> None:
    troupe = shrinking(workers=3, to=2, step=8)
    resize = troupe.newest()
    troupe.die(*resize.leavers)
    troupe.turn()
    assert {worker for worker, _ in troupe.told("abort")} == set(resize.members)
    lost = dict(troupe.uplink.events)["worker_lost"]
    assert (lost["rank"], lost["worker"]) == (None, resize.leavers[0])
    for worker in resize.members:
        troupe.report(worker, Broken(generation=2, step=8, error="gone", holdings=(), whole={}))
    troupe.turn()
    assert troupe.newest().origin == FromDisk()


def test_leavers_alone_go_on_where_every_member_died_while_they_handed_over() -> None:
    troupe = shrinking(workers=3, to=1, step=8)
    resize = troupe.newest()
    for member in resize.members:
        troupe.die(member)
    troupe.turn()
    answer(troupe, *resize.leavers, step=8)
    join = troupe.newest()
    assert (join.generation, join.origin) == (3, FromMembers(step=8, holders=resize.leavers))
    assert (len(join.members), len(join.leavers)) == (1, 1)


def test_where_no_worker_is_left_the_pause_is_as_the_controller_saw_it() -> None:
    troupe = running(workers=1, stage=0)
    troupe.steps(5)
    troupe.turn(after_s=1.5)
    troupe.die("w1")
    troupe.turn()
    troupe.warm()
    troupe.join(step=0, source="start", pause_s=None)
    payload = dict(troupe.uplink.events)["recovered"]
    assert payload["pause_s"] == pytest.approx(1.8, abs=0.11)
    assert payload["message"].startswith("1 worker went on from step 0, out of the start: 5 steps redone, 0.0 MB moved")


def test_generations_lost_in_a_row_without_a_step_end_the_attempt() -> None:
    troupe = running(workers=2, stage=3)
    for _ in range(LOSSES + 1):
        assert troupe.outcome is None
        for worker in troupe.newest().members:
            troupe.report(worker, troupe.broken(worker, step=0))
        troupe.turn()
        if troupe.outcome is None:
            for worker in troupe.newest().members:
                report = Joined(
                    generation=troupe.newest().generation,
                    step=0,
                    source="start",
                    form_s=0,
                    move_s=0,
                    moved_bytes=0,
                )
                troupe.report(worker, report)
            troupe.turn()
    assert (troupe.outcome.result, troupe.outcome.cause) == ("failed", "machine")


def test_a_pause_while_survivors_wait_for_others_saves_what_they_hold() -> None:
    troupe = running(workers=2, minimum=2, stage=0)
    lose_one(troupe, step=9)
    troupe.order(action="pause")
    troupe.turn()
    assert (troupe.newest().generation, troupe.newest().members) == (2, ("w1",))
    troupe.join(step=9, source="survivors")
    troupe.turn()
    assert troupe.told("stop") == [("w1", (2,))]
    troupe.stop(step=10)
    troupe.report("w1", Saved(generation=2, step=10, uri="u/step-00000010", size_bytes=1, files=2, duration_s=0.1))
    troupe.turn()
    assert troupe.outcome == Outcome(result="paused", reason="checkpoint of step 10 saved")


def test_a_pause_where_nobody_holds_the_state_says_what_was_lost() -> None:
    troupe = running(workers=2, minimum=2, stage=3)
    troupe.steps(7)
    lose_one(troupe, step=9)
    troupe.order(action="leave")
    troupe.turn()
    assert troupe.outcome.result == "paused"
    assert "up to step 9 since the newest checkpoint was lost" in troupe.outcome.reason


def test_a_failed_device_costs_its_worker_and_not_the_job() -> None:
    troupe = running(workers=2, stage=0)
    troupe.report("w2", Crashed(generation=1, step=3, cause="machine", reason="CUDA error: uncorrectable ECC error"))
    troupe.turn()
    assert troupe.outcome is None
    assert troupe.group.ended == ["w2"]
    troupe.report("w1", troupe.broken("w1", step=3))
    troupe.turn()
    assert troupe.newest().origin == FromMembers(step=3, holders=("w1",))


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (
            "The actor died because its node has died. Node Id: 4f\n\tthe actor's node was terminated: x",
            "its node died",
        ),
        ("Task was killed due to the node running low on memory.\nMemory on the node was 15 GB", "ran low on memory"),
        (
            "The actor is dead because its worker process has died. Worker exit detail: connection error code 2. "
            "(1) The process is killed by SIGKILL by OOM killer due to high memory usage.",
            "its process died",
        ),
    ],
)
def test_a_death_is_told_in_our_words(told: str, reason: str) -> None:
    why = why_dead(RayActorError(error_msg=told))
    assert why.endswith(reason)
    assert "\n" not in why


def test_a_worker_that_cannot_be_reached_is_told_without_the_calls_that_failed() -> None:
    error = ActorUnavailableError("RpcError: failed to connect to all addresses; ipv4:127.0.0.1:1; rpc_code: 14", None)
    assert why_dead(error) == "its process could not be reached any more"


def test_an_attempt_after_a_lost_one_tells_its_recovery() -> None:
    troupe = Troupe(workers=2, lost=LostAttempt(step=40, stood_s=9.0))
    troupe.controller.adopt([])
    troupe.turn()
    assert (troupe.uplink.shown.phase, troupe.uplink.shown.step) == ("recovering", 40), "the step does not go to 0"
    troupe.warm()
    troupe.now += 2.0
    troupe.join(step=30, source="checkpoint", pause_s=None)
    payload = dict(troupe.uplink.events)["recovered"]
    assert (payload["from"], payload["from_step"], payload["redone_steps"]) == ("checkpoint", 30, 10)
    assert payload["pause_s"] == pytest.approx(9.0 + troupe.now)


def test_an_attempt_that_recovers_nothing_tells_no_recovery() -> None:
    troupe = running(workers=2)
    assert "recovered" not in troupe.uplink.kinds()
