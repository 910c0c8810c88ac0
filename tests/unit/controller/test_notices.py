"""What the controller does at the notice that a worker or its node is about to end."""

from __future__ import annotations

import pytest

from tests.unit.controller.troupe import Troupe, running
from workers.controller.ending import TOLD_S
from workers.controller.notices import LEAVE_BEFORE_S
from workers.worker.messages import FromMembers, Notice, Save, Saved


def drain(troupe: Troupe, worker: str, *, left_s: float | None) -> None:
    troupe.group.drained[worker] = left_s
    troupe.turn(after_s=1.1)


def test_who_has_time_stays_until_its_replacement_is_warm_and_hands_over_to_it() -> None:
    troupe = running(workers=2)
    drain(troupe, "w2", left_s=60)
    assert "w3" in troupe.group, "asked for at the notice"
    kind, payload = troupe.uplink.events[-1]
    assert (kind, payload["rank"], payload["worker"], payload["left_s"]) == ("notice", 1, "w2", 60)
    assert troupe.told("stop") == []
    troupe.warm("w3")
    assert troupe.told("stop") == [("w1", (1,))]
    troupe.stop(step=7)
    join = troupe.newest()
    assert (set(join.members), join.leavers) == ({"w1", "w3"}, ("w2",))
    assert join.origin == FromMembers(step=7, holders=("w1", "w2"))
    troupe.join(step=7, source="survivors")
    assert troupe.group.ended == ["w2"]
    kind, payload = troupe.uplink.events[-1]
    assert (kind, payload["redone_steps"]) == ("resized", 0)
    assert payload["message"].startswith("1 of 2 workers replaced at step 7")
    assert troupe.uplink.kinds().count("notice") == 1


def test_shortly_before_its_time_it_leaves_without_a_replacement() -> None:
    troupe = running(workers=2)
    drain(troupe, "w2", left_s=60)
    troupe.turn(after_s=60 - LEAVE_BEFORE_S - 1)
    assert troupe.told("stop") == []
    troupe.turn(after_s=1)
    troupe.stop(step=7)
    join = troupe.newest()
    assert (join.members, join.leavers) == (("w1",), ("w2",))
    troupe.join(step=7, source="survivors")
    troupe.warm("w3")
    troupe.stop(step=9)
    assert set(troupe.newest().members) == {"w1", "w3"}, "the replacement joins when it is warm"


def test_a_worker_that_was_told_to_end_leaves_at_once() -> None:
    troupe = running(workers=3)
    troupe.report("w1", Notice(reason="its process got SIGTERM"))
    troupe.turn()
    assert troupe.told("stop") == [("w1", (1,))]
    troupe.stop(step=4)
    join = troupe.newest()
    assert (set(join.members), join.leavers) == ({"w2", "w3"}, ("w1",))


def test_a_recruit_on_a_node_that_drains_is_replaced_before_it_joins() -> None:
    troupe = running(workers=1)
    troupe.order(workers=2)
    troupe.turn()
    drain(troupe, "w2", left_s=60)
    troupe.turn()
    assert troupe.group.ended == ["w2"]
    assert "w3" in troupe.group
    assert "notice" not in troupe.uplink.kinds()


def test_where_too_few_would_stay_all_is_saved_before_the_time_is_over() -> None:
    troupe = running(workers=2, minimum=2)
    drain(troupe, "w2", left_s=LEAVE_BEFORE_S)
    troupe.turn()
    assert troupe.told("stop") == [("w1", (1,))]
    troupe.stop(step=7)
    assert troupe.told("order")[-1] == ("w2", (Save(generation=1),))
    troupe.report("w1", Saved(generation=1, step=7, uri="u", size_bytes=1, files=1, duration_s=0.1))
    troupe.turn()
    assert troupe.outcome.result == "paused"
    assert troupe.outcome.reason == "1 of 2 workers had to leave, and 1 that stay are fewer than 2"


@pytest.mark.parametrize("in_time", [True, False])
def test_a_controller_that_is_told_to_end_saves_first_but_not_for_ever(in_time: bool) -> None:
    troupe = running(workers=2)
    troupe.controller.leave()
    troupe.turn()
    assert troupe.told("stop") == [("w1", (1,))]
    troupe.stop(step=4)
    if in_time:
        troupe.report("w1", Saved(generation=1, step=4, uri="u", size_bytes=1, files=1, duration_s=0.1))
        troupe.turn()
    else:
        troupe.turn(after_s=TOLD_S + 1)
    assert troupe.outcome.result == "paused"
    assert ("step 4 saved" in troupe.outcome.reason) is in_time
