from __future__ import annotations

import pytest

from workers.engine.zero.prefetch import Action, Habits, Launch, Launches, backward_launches, forward_launches

G, R = Action.GATHER, Action.REDUCE


def walk(launches: tuple[Launch, ...], ready: set[int]) -> tuple[Launches, list[Launch]]:
    started: list[Launch] = []
    return Launches(launches, start=started.append, ready=ready.__contains__), started


def short(launches: list[Launch] | tuple[Launch, ...]) -> str:
    return " ".join(f"{'G' if each.action is G else 'R'}{each.unit}" for each in launches)


def test_the_backward_gathers_the_root_first_and_reduces_it_last() -> None:
    assert short(backward_launches([0, 1, 2, 3, 4], gathers=True, reduces=True)) == "G0 G4 G3 R4 G2 R3 G1 R2 R1 R0"


def test_units_used_again_are_reduced_at_the_end() -> None:
    late = backward_launches([0, 1, 2, 3, 4], gathers=True, reduces=True, late={3, 1})
    assert short(late) == "G0 G4 G3 R4 G2 G1 R2 R3 R1 R0"


@pytest.mark.parametrize("count", range(1, 7))
@pytest.mark.parametrize("late", [set(), {1, 2}])
def test_every_unit_is_gathered_once_and_then_reduced_once(count: int, late: set[int]) -> None:
    launches = backward_launches(range(count), gathers=True, reduces=True, late=late)
    for unit in range(count):
        assert launches.index(Launch(G, unit)) < launches.index(Launch(R, unit))
    assert len(launches) == 2 * count


def test_a_pass_without_gathers_or_reductions_leaves_them_out() -> None:
    assert short(backward_launches([0, 1, 2], gathers=False, reduces=True)) == "R2 R1 R0"
    assert short(backward_launches([0, 1, 2], gathers=True, reduces=False)) == "G0 G2 G1"
    assert short(forward_launches([0, 2, 1])) == "G0 G2 G1"


def test_use_of_a_unit_starts_the_gather_after_it_and_no_more() -> None:
    launches, started = walk(forward_launches([0, 1, 2, 3]), set())
    launches.reach_gather(0)
    launches.allow_next_gather(0)
    assert short(started) == "G0 G1"
    launches.reach_gather(1)
    launches.allow_next_gather(1)
    assert short(started) == "G0 G1 G2"


def test_a_unit_that_this_rank_skipped_is_gathered_in_its_place() -> None:
    launches, started = walk(forward_launches([0, 1, 2, 3]), set())
    launches.reach_gather(0)
    launches.reach_gather(3)
    assert short(started) == "G0 G1 G2 G3"


def test_a_reduction_waits_for_the_gradients_unless_a_later_gather_is_needed_now() -> None:
    ready: set[int] = set()
    launches, started = walk(backward_launches([0, 1, 2, 3], gathers=True, reduces=True), ready)
    launches.reach_gather(0)
    for unit in (3, 2):
        launches.reach_gather(unit)
        launches.allow_next_gather(unit)
    assert short(started) == "G0 G3 G2"
    ready.add(3)
    launches.advance()
    assert short(started) == "G0 G3 G2 R3 G1"
    launches, started = walk(backward_launches([0, 1, 2, 3], gathers=True, reduces=True), set())
    launches.reach_gather(1)
    assert short(started) == "G0 G3 G2 R3 G1"


def test_what_nobody_asked_for_is_launched_at_the_end() -> None:
    launches, started = walk(backward_launches([0, 1], gathers=False, reduces=True), set())
    launches.advance()
    assert started == []
    while launches.pop():
        pass
    assert short(started) == "R1 R0"


def test_ranks_that_stop_at_different_places_launch_the_same_list() -> None:
    whole = backward_launches([0, 1, 2, 3, 4], gathers=True, reduces=True)
    for ready, asked in (({4, 3, 2, 1}, [0, 4, 3, 2, 1]), (set(), [2, 1]), ({2}, [])):
        launches, started = walk(whole, ready)
        for unit in asked:
            launches.reach_gather(unit)
            launches.allow_next_gather(unit)
        while launches.pop():
            pass
        assert tuple(started) == whole


def test_habits_are_those_of_rank_0_on_every_rank() -> None:
    ranks = [Habits(4), Habits(4)]
    for unit in (0, 3, 1, 3):
        ranks[0].use(unit)
    for unit in (0, 1, 2, 3):
        ranks[1].use(unit)
    ranks[1].use_again(2)
    votes = [habits.votes(rank=rank) for rank, habits in enumerate(ranks)]
    for habits in ranks:
        habits.adopt([sum(pair) for pair in zip(*votes, strict=True)])
        assert habits.order == [0, 3, 1, 2]
        assert habits.again == {2}
        assert len(habits.votes(rank=0)) == 4


def test_the_order_stays_open_until_rank_0_has_used_something() -> None:
    habits = Habits(2)
    habits.adopt(habits.votes(rank=0))
    assert len(habits.votes(rank=0)) == 4
