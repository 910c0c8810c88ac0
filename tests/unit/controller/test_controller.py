"""What the controller decides when workers and the service do this and that."""

from __future__ import annotations

import pytest

from service.domain.wire import Outcome
from tests.unit.controller.troupe import Troupe
from workers.controller.ending import LOSSES
from workers.controller.group import Hand
from workers.controller.progress import ANSWER_S
from workers.layout.interval import Interval
from workers.layout.layout import Piece
from workers.worker.messages import (
    Adopted,
    Broken,
    Crashed,
    Finished,
    FromDisk,
    FromMembers,
    Holding,
    Inventory,
    Joined,
    Ready,
    Save,
    Saved,
    SaveFailed,
)


def running(**given: int) -> Troupe:
    troupe = Troupe(**given)
    troupe.turn()
    troupe.warm()
    troupe.join()
    return troupe


def test_the_first_generation_waits_for_all_and_starts_from_disk() -> None:
    troupe = Troupe(workers=3)
    troupe.turn()
    troupe.warm("w1", "w2")
    assert troupe.joins() == {}
    troupe.warm("w3")
    join = troupe.newest()
    assert (join.generation, len(join.members), join.origin) == (1, 3, FromDisk())
    assert troupe.uplink.shown.phase == "starting"
    troupe.join()
    assert troupe.uplink.shown.phase == "running"
    assert [worker.pid for worker in troupe.uplink.shown.workers] == [1, 2, 3]


def test_after_some_patience_the_minimum_begins_without_the_rest() -> None:
    troupe = Troupe(workers=3, minimum=2)
    troupe.turn()
    troupe.warm("w1", "w2")
    troupe.turn(after_s=9)
    assert troupe.joins() == {}
    troupe.turn(after_s=2)
    assert troupe.newest().members == ("w1", "w2")


def test_growing_waits_for_the_joiner_then_stops_and_moves_from_members() -> None:
    troupe = running(workers=2)
    troupe.order(workers=3)
    troupe.turn()
    assert troupe.told("stop") == []
    troupe.warm("w3")
    assert troupe.told("stop") == [("w1", (1,))]
    troupe.stop(step=7)
    join = troupe.newest()
    assert join.members == ("w1", "w3", "w2"), "the joiner sits between"
    assert join.origin == FromMembers(step=7, holders=("w1", "w2"))
    troupe.join(step=7, source="survivors")
    kind, payload = troupe.uplink.events[-1]
    assert (kind, payload["from"], payload["to"], payload["redone_steps"]) == ("resized", 2, 3, 0)


def test_shrinking_lets_leavers_hand_over_before_they_end() -> None:
    troupe = running(workers=3)
    troupe.order(workers=2)
    troupe.turn()
    troupe.stop(step=4)
    join = troupe.newest()
    assert (join.members, join.leavers) == (("w1", "w3"), ("w2",))
    assert troupe.group.ended == []
    troupe.join(step=4, source="survivors")
    assert troupe.group.ended == ["w2"]
    assert troupe.uplink.shown.phase == "running"


def test_a_wish_that_is_taken_back_while_stopping_forms_the_same_group_again() -> None:
    troupe = running(workers=2)
    troupe.order(workers=1)
    troupe.turn()
    troupe.order(workers=2)
    troupe.stop(step=4)
    assert troupe.newest().members == ("w1", "w2")
    troupe.join(step=4, source="survivors")
    assert "resized" not in troupe.uplink.kinds()


def test_a_joiner_that_is_no_longer_wanted_ends_without_a_generation() -> None:
    troupe = running(workers=2)
    troupe.order(workers=4)
    troupe.turn()
    troupe.order(workers=2)
    troupe.turn()
    assert troupe.group.ended == ["w3", "w4"]
    assert troupe.told("stop") == []


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


def test_a_stale_answer_of_an_older_generation_changes_nothing() -> None:
    troupe = running(workers=2, stage=0)
    stale = troupe.broken("w1", step=1)
    troupe.order(workers=3)
    troupe.turn()
    troupe.warm("w3")
    troupe.stop(step=2)
    troupe.join(step=2, source="survivors")
    troupe.report("w1", stale)
    troupe.turn()
    assert troupe.uplink.shown.phase == "running"


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


@pytest.mark.parametrize("action", ["pause", "leave"])
def test_a_pause_saves_the_agreed_boundary_before_it_ends(action: str) -> None:
    troupe = running(workers=2)
    troupe.order(action=action)
    troupe.turn()
    assert troupe.uplink.shown.phase == "pausing"
    troupe.stop(step=11)
    assert [args[0] for _, args in troupe.told("order")][-2:] == [Save(generation=1)] * 2
    assert troupe.outcome is None
    saved = Saved(generation=1, step=11, uri="u/step-00000011", size_bytes=1, files=3, duration_s=0.1)
    troupe.report("w1", saved)
    troupe.turn()
    assert troupe.outcome.result == "paused"
    assert troupe.uplink.checkpoints[0].step == 11


def test_a_pause_that_cannot_be_saved_fails_and_says_why() -> None:
    troupe = running(workers=2)
    troupe.order(action="pause")
    troupe.turn()
    troupe.stop(step=11)
    troupe.report("w1", SaveFailed(generation=1, step=11, reason="no space left"))
    troupe.turn()
    assert (troupe.outcome.result, troupe.outcome.cause) == ("failed", "machine")
    assert "no space left" in troupe.outcome.reason


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


def test_a_cancel_ends_at_once_whatever_the_state() -> None:
    for prepare in (lambda t: t.turn(), lambda t: (t.turn(), t.warm()), lambda t: (t.turn(), t.warm(), t.join())):
        troupe = Troupe(workers=2)
        prepare(troupe)
        troupe.order(action="cancel")
        troupe.turn()
        assert troupe.outcome.result == "cancelled"


def test_a_request_for_a_checkpoint_is_passed_on_once() -> None:
    troupe = running(workers=2)
    troupe.order(checkpoint_request="r1")
    troupe.turn()
    troupe.turn()
    assert troupe.told("save") == [("w1", (1, "r1"))]


def test_a_failed_device_costs_its_worker_and_not_the_job() -> None:
    troupe = running(workers=2, stage=0)
    troupe.report("w2", Crashed(generation=1, step=3, cause="machine", reason="CUDA error: uncorrectable ECC error"))
    troupe.turn()
    assert troupe.outcome is None
    assert troupe.group.ended == ["w2"]
    troupe.report("w1", troupe.broken("w1", step=3))
    troupe.turn()
    assert troupe.newest().origin == FromMembers(step=3, holders=("w1",))


def test_an_exception_in_a_generation_fails_the_job() -> None:
    troupe = running(workers=2)
    troupe.report("w2", Crashed(generation=1, step=3, cause="user", reason="ValueError: no label (m.py:3)"))
    troupe.turn()
    assert (troupe.outcome.result, troupe.outcome.cause) == ("failed", "user")
    assert troupe.outcome.reason == "ValueError: no label (m.py:3)"


def test_a_joiner_that_crashes_alone_does_not_end_a_healthy_job() -> None:
    troupe = running(workers=2)
    troupe.order(workers=3)
    troupe.turn()
    troupe.report("w3", Crashed(generation=0, step=0, cause="user", reason="no such file here"))
    troupe.turn()
    assert troupe.outcome is None
    assert "w3" in troupe.group.ended
    troupe.turn()
    assert len(troupe.group) == 2, "the next is not asked for at once"
    troupe.turn(after_s=2)
    assert len(troupe.group) == 3


def test_the_speakers_end_is_the_jobs_even_where_others_die_after_it() -> None:
    troupe = running(workers=2)
    troupe.report("w1", Finished(generation=1, step=100))
    troupe.die("w2")
    troupe.turn()
    assert troupe.outcome.result == "succeeded"


def test_a_last_step_that_could_not_be_saved_is_no_success() -> None:
    troupe = running(workers=1, steps=100)
    troupe.report("w1", SaveFailed(generation=1, step=100, reason="no space left"))
    troupe.report("w1", Finished(generation=1, step=100))
    troupe.turn()
    assert troupe.outcome.result == "failed"


def adopting(*found: Adopted) -> Troupe:
    troupe = Troupe(workers=2, stage=0)
    for each in found:
        troupe.group.hands[each.worker_id] = Hand(id=each.worker_id, actor=None, ready=each.ready)
    troupe.controller.adopt(found)
    return troupe


def left(worker: str, *, generation: int = 4, training: bool = True) -> Adopted:
    ready = Ready(pid=int(worker[1:]), node="n", device="cpu", warm_s=1.0)
    return Adopted(
        worker_id=worker, ready=ready, generation=generation, members=("w1", "w2"), training=training, step=30
    )


def test_workers_that_make_steps_are_adopted_without_a_pause() -> None:
    troupe = adopting(left("w1"), left("w2"))
    troupe.turn()
    assert troupe.uplink.shown.phase == "running"
    assert (troupe.uplink.shown.generation, troupe.uplink.shown.step) == (4, 30)
    assert troupe.group.told == []
    assert "adopted" in troupe.uplink.kinds()
    assert troupe.group.born == 0


def test_a_member_that_is_missing_at_adoption_means_a_new_generation_of_the_rest() -> None:
    troupe = adopting(left("w1"))
    assert [worker for worker, _ in troupe.told("abort")] == ["w1"]
    piece = Piece("t", Interval(0, 12))
    holdings = (Holding(step=30, pieces=(piece,)),)
    troupe.report("w1", Broken(generation=4, step=30, error="reset", holdings=holdings, whole={"t": 12}))
    troupe.turn()
    join = troupe.newest()
    assert (join.generation, join.members) == (5, ("w1",))
    assert join.origin == FromMembers(step=30, holders=("w1",))


def test_joiners_of_a_lost_controller_join_the_new_one() -> None:
    joiner = left("w3", generation=0, training=False)
    troupe = adopting(left("w1"), left("w2"), joiner)
    troupe.order(workers=3)
    troupe.turn()
    assert troupe.told("stop") == [("w1", (4,))]


def test_who_was_disowned_leaves_its_workers_alone() -> None:
    troupe = running(workers=2)
    troupe.group.haul.disowned = True
    troupe.turn()
    assert troupe.outcome.result == "superseded"
    assert troupe.controller.run().result == "superseded"
    assert (troupe.group.released, troupe.group.ended) == (["w1", "w2"], [])
