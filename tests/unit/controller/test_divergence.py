"""Who left the common order of collectives, and that the service is told."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.controller.troupe import running
from workers.controller.divergence import Divergence, first_difference
from workers.engine.states import Collective


def record(*units: str, first: int = 1, finished: int = 0, at: float = 0.0) -> list[Collective]:
    """all_gathers of units one after the other, the first ones of which are finished."""
    return [
        Collective(number, "all_gather", unit, 10, at + 0.1 * number, finished=number < first + finished)
        for number, unit in enumerate(units, start=first)
    ]


def test_the_first_rank_in_another_collective_than_most_is_named_with_its_unit() -> None:
    recent = {0: record("root", "a", "b"), 1: record("root", "b"), 2: record("root", "a", "b")}
    found = first_difference(recent)
    assert found == Divergence(
        rank=1,
        sequence=2,
        unit="b",
        sentence="rank 1 was in all_gather of b, 10 elements where others were in all_gather of a, 10 elements "
        "(collective 2)",
    )


def test_another_size_of_the_same_unit_is_a_difference() -> None:
    odd = [Collective(1, "all_gather", "a", 12, 0.0)]
    found = first_difference({0: record("a"), 1: record("a"), 2: odd})
    assert found is not None
    assert (found.rank, found.unit) == (2, "a")


def test_the_rank_that_came_least_far_is_named_with_what_the_others_wait_in() -> None:
    whole = record("root", "a", "b")
    found = first_difference({0: whole, 1: record("root", "a"), 2: whole})
    assert found is not None
    assert (found.rank, found.sequence, found.unit) == (1, 3, "b")
    assert found.sentence.startswith("to all_gather of b, 10 elements (collective 3) rank 1 did not come; its last was")


def test_a_rank_that_says_nothing_is_named_with_the_oldest_collective_that_did_not_end() -> None:
    recent = {0: record("root", "a", "b", finished=1), 1: [], 2: record("root", "a", finished=1)}
    found = first_difference(recent)
    assert found is not None
    assert (found.rank, found.sequence, found.unit) == (1, 2, "a")
    assert found.sentence.endswith("rank 1 did not come, and says nothing")


def test_a_rank_that_came_to_all_of_them_too_late_is_named() -> None:
    late = [*record("root", finished=1), *record("a", "b", first=2, at=5.0)]
    on_time = record("root", "a", "b", finished=1)
    found = first_difference({0: on_time, 1: late, 2: on_time})
    assert found is not None
    assert (found.rank, found.unit) == (1, "a")
    assert found.sentence.endswith("rank 1 came 5.0 s after the first")


def test_only_what_all_remember_is_compared() -> None:
    early, late = record("root", "a", "b"), record("a", "b", first=2)
    assert first_difference({0: early, 1: late}) is None


def test_equal_records_and_no_records_name_nobody() -> None:
    assert first_difference({0: record("a"), 1: record("a")}) is None
    assert first_difference({0: [], 1: []}) is None
    assert first_difference({}) is None


def gathers(*units: str) -> tuple[Collective, ...]:
    return tuple(Collective(number, "all_gather", unit, 6, 0.0) for number, unit in enumerate(units, start=1))


def test_a_failed_collective_names_the_rank_and_the_unit_where_everybody_lives() -> None:
    troupe = running(workers=2)
    troupe.report("w1", replace(troupe.broken("w1", step=3), recent=gathers("root", "a")))
    troupe.report("w2", replace(troupe.broken("w2", step=3), recent=gathers("root")))
    troupe.turn()
    (told,) = [payload for kind, payload in troupe.uplink.events if kind == "collective_failed"]
    assert (told["rank"], told["unit"], told["collective"], told["step"]) == (1, "a", 2, 3)
    assert "At step 3: to all_gather of a, 6 elements (collective 2) rank 1 did not come" in told["message"]


def test_a_death_is_told_by_itself_and_no_rank_is_blamed_for_it() -> None:
    troupe = running(workers=2)
    troupe.die("w2")
    troupe.report("w1", replace(troupe.broken("w1", step=3), recent=gathers("root", "a")))
    troupe.turn()
    assert "worker_lost" in troupe.uplink.kinds()
    assert "collective_failed" not in troupe.uplink.kinds()
