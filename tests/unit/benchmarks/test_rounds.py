from __future__ import annotations

import pytest

from benchmarks.rounds import measure, median, order, ratio


def test_every_contender_is_first_equally_often() -> None:
    turns = order(["a", "b", "c"], rounds=6)
    firsts = [turns[3 * turn][1] for turn in range(6)]
    assert sorted(firsts) == ["a", "a", "b", "b", "c", "c"]
    assert all({name for turn, name in turns if turn == wanted} == {"a", "b", "c"} for wanted in range(6))


def test_a_slow_round_hits_all_and_leaves_the_ratio_alone() -> None:
    slow = {"a": iter([1.0, 10.0, 1.0]), "b": iter([2.0, 20.0, 2.0])}
    found = measure(["a", "b"], rounds=3, turn=lambda name: {"step_s": next(slow[name])})
    between = ratio(found["b"], found["a"], "step_s")
    assert (between.low, between.median, between.high) == (2.0, 2.0, 2.0)
    assert median(found["a"], "step_s") == 1.0


def test_rounds_end_where_no_other_fits_and_never_within_one() -> None:
    asked: list[int] = []

    def go_on(done: int) -> bool:
        asked.append(done)
        return done < 3

    found = measure(["a", "b"], rounds=9, turn=lambda name: {}, go_on=go_on)
    assert {name: len(rounds) for name, rounds in found.items()} == {"a": 3, "b": 3}
    assert asked == [1, 2, 3]


def test_a_ratio_of_different_rounds_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratio([{"step_s": 1.0}, {"step_s": 1.0}], [{"step_s": 1.0}], "step_s")
