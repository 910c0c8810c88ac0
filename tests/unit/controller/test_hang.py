"""Workers that live and make no step: who is ended for it, when, and what is said."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.spec import HangSpec
from tests.unit.controller.troupe import Troupe
from workers.controller.hang import SAVE_TIMES, SLOW_TIMES
from workers.controller.progress import FIRST_STEP_S, FLOOR_S, TIMES_A_STEP, Progress
from workers.worker.messages import FromMembers, Inventory


def training(*, workers: int = 3, step_s: float = 0.1, **given: Any) -> Troupe:
    troupe = Troupe(workers=workers, stage=0, **given)
    troupe.turn()
    troupe.warm()
    troupe.join()
    troupe.steps(12, step_s=step_s)
    return troupe


def hung(troupe: Troupe) -> list[dict[str, Any]]:
    return [payload for kind, payload in troupe.uplink.events if kind == "worker_hung"]


def test_the_one_that_computes_while_others_wait_is_ended_and_the_others_go_on() -> None:
    troupe = training()
    troupe.at("w1", "waiting", step=12)
    troupe.at("w2", "computing", step=12)
    troupe.at("w3", "waiting", step=12)
    troupe.turn(after_s=FLOOR_S - 1)
    assert hung(troupe) == []
    troupe.turn(after_s=2)
    assert troupe.group.ended == ["w2"]
    (report,) = hung(troupe)
    assert "rank 1 is computing after step 12 in forward (/home/me/w2.py:20)" in report["message"]
    assert "rank 0 waits for the group after step 12" in report["message"]
    assert [each["doing"] for each in report["where"]] == ["waiting", "computing", "waiting"]
    assert [w for w, args in troupe.told("order") if isinstance(args[0], Inventory)] == ["w1", "w3"]
    for worker in ("w1", "w3"):
        troupe.report(worker, troupe.broken(worker, step=12))
    troupe.turn()
    assert troupe.newest().members == ("w1", "w3")
    assert troupe.newest().origin == FromMembers(step=12, holders=("w1", "w3"))


def test_a_stopped_process_is_ended_by_its_silence_alone() -> None:
    troupe = training()
    troupe.group["w3"].silent_s = 14.0
    troupe.turn()
    assert troupe.group.ended == []
    troupe.group["w3"].silent_s = 15.5
    troupe.turn()
    assert troupe.group.ended == ["w3"]
    lost = dict(troupe.uplink.events)["worker_lost"]
    assert "has not answered for 16 s" in lost["message"]
    assert lost["rank"] == 2


def test_where_all_wait_for_each_other_nobody_is_ended() -> None:
    troupe = training(workers=2)
    for worker in ("w1", "w2"):
        troupe.at(worker, "waiting", step=12)
    troupe.turn(after_s=FLOOR_S + 1)
    assert troupe.group.ended == []
    assert {worker for worker, _ in troupe.told("abort")} == {"w1", "w2"}


def test_a_hang_right_after_the_first_step_of_a_generation_is_none_of_the_first_step() -> None:
    troupe = Troupe(workers=2, stage=0)
    troupe.turn()
    troupe.warm()
    # The first step is told together with the last Joined.
    troupe.join()
    troupe.at("w1", "waiting", step=1)
    troupe.at("w2", "computing", step=1)
    troupe.turn(after_s=FLOOR_S + 1)
    assert troupe.group.ended == ["w2"]


@pytest.mark.parametrize(("doing", "times"), [("computing", SLOW_TIMES), ("saving", SAVE_TIMES)])
def test_where_nobody_waits_a_step_is_slow_before_it_hangs(doing: Any, times: float) -> None:
    troupe = training(workers=1)
    troupe.at("w1", doing, step=12)
    troupe.turn(after_s=FLOOR_S * times - 1)
    assert hung(troupe) == []
    troupe.turn(after_s=2)
    assert len(hung(troupe)) == 1


def test_a_hang_while_the_group_stops_is_found_too() -> None:
    troupe = training(workers=2)
    troupe.order(workers=1)
    troupe.turn()
    troupe.at("w1", "waiting", step=12)
    troupe.at("w2", "computing", step=12)
    troupe.turn(after_s=FLOOR_S + 1)
    assert troupe.group.ended == ["w2"]


def test_the_limit_follows_recent_steps_and_a_first_step_has_its_own() -> None:
    now = [0.0]
    progress = Progress(HangSpec(), clock=lambda: now[0])
    progress.begin(0)
    assert progress.limit_s == FIRST_STEP_S
    progress.advance(1, step_s=2.0)
    assert progress.limit_s == FLOOR_S
    progress.advance(2, step_s=40.0)
    assert progress.limit_s == TIMES_A_STEP * 40.0
    for step in range(3, 60):
        progress.advance(step, step_s=1.0)
    assert progress.limit_s == FLOOR_S, "old steps are forgotten"
    progress.begin(59)
    assert progress.limit_s == FIRST_STEP_S


def test_a_limit_of_the_specs_own_holds_for_every_step_but_the_first() -> None:
    progress = Progress(HangSpec(step_s=3.0), clock=lambda: 0.0)
    progress.begin(0)
    assert progress.limit_s == FIRST_STEP_S
    progress.advance(1, step_s=100.0)
    assert progress.limit_s == 3.0


def test_a_late_word_of_an_older_step_moves_nothing_back() -> None:
    now = [0.0]
    progress = Progress(HangSpec(), clock=lambda: now[0])
    progress.advance(9, step_s=1.0)
    now[0] = 5.0
    progress.advance(8)
    assert (progress.step, progress.waited_s) == (9, 5.0)
