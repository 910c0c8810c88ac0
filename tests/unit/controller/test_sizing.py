"""Who is in the next generation and in which order."""

from __future__ import annotations

from workers.controller.sizing import PATIENCE_S, Crew, Resize, first_members, next_members, seated, shrunk


def test_a_joiner_sits_where_it_moves_least() -> None:
    assert seated(("a", "b"), ("c",)) == ("a", "c", "b")
    assert seated((), ("a", "b")) == ("a", "b")


def test_the_one_whose_leaving_moves_least_leaves() -> None:
    assert shrunk(("a", "b", "c"), 2) == Resize(members=("a", "c"), leavers=("b",))


def test_many_workers_shrink_without_counting_every_choice() -> None:
    members = tuple(f"w{number}" for number in range(64))
    resize = shrunk(members, 32)
    assert len(resize.members) == 32
    assert set(resize.members) | set(resize.leavers) == set(members)


def test_growth_waits_for_those_still_starting_but_not_for_ever() -> None:
    crew = Crew(members=("a",), ready=("b",), starting=1)
    assert next_members(crew, desired=3, waited_s=PATIENCE_S - 1) is None
    grown = next_members(crew, desired=3, waited_s=PATIENCE_S)
    assert grown is not None
    assert set(grown.members) == {"a", "b"}


def test_nothing_changes_where_nobody_is_ready_or_the_size_is_right() -> None:
    assert next_members(Crew(members=("a", "b"), starting=1), desired=3, waited_s=99) is None
    assert next_members(Crew(members=("a", "b"), ready=("c",)), desired=2, waited_s=99) is None


def test_too_many_joiners_are_not_taken() -> None:
    grown = next_members(Crew(members=("a",), ready=("b", "c")), desired=2, waited_s=0)
    assert grown is not None
    assert set(grown.members) == {"a", "b"}


def test_a_beginning_below_the_minimum_never_happens() -> None:
    crew = Crew(ready=("a",), starting=1)
    assert first_members(crew, desired=2, minimum=2, waited_s=999) is None
    assert first_members(crew, desired=2, minimum=1, waited_s=PATIENCE_S) == ("a",)
