"""What the controller decides when workers and the service do this and that."""

from __future__ import annotations

import pytest

from tests.unit.controller.troupe import Troupe, running
from workers.controller.group import Hand
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
    Ready,
    Save,
    Saved,
    SaveFailed,
)


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
