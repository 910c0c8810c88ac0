"""Who holds which element, read both ways."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.layout.shards import any_layout, elements, layouts, replicated
from workers.layout.balance import once
from workers.layout.coverage import coverage, merged, missing
from workers.layout.interval import Interval
from workers.layout.layout import Layout, Piece


def holders(layout: Layout[int], element: tuple[str, int]) -> set[int]:
    return {owner for owner, parts in layout.pieces.items() if element in elements(parts)}


@given(layout=any_layout(), span=st.tuples(st.integers(0, 25), st.integers(0, 25)), tensor=st.sampled_from("abc"))
def test_a_piece_is_cut_where_its_holders_change_and_nowhere_lost(
    layout: Layout[int], span: tuple[int, int], tensor: str
) -> None:
    piece = Piece(tensor, Interval(*sorted(span)))
    parts = list(coverage(layout).within(piece))
    assert elements(tuple(part.piece for part in parts)) == elements((piece,))
    for part in parts:
        assert len(set(part.holders)) == len(part.holders)
        assert all(holders(layout, element) == set(part.holders) for element in elements((part.piece,)))


@given(layout=any_layout())
def test_merging_keeps_the_elements_in_the_fewest_pieces(layout: Layout[int]) -> None:
    for parts in layout.pieces.values():
        result = merged(parts)
        assert elements(result) == sorted(set(elements(parts)))
        assert all(a.tensor != b.tensor or a.interval.stop < b.interval.start for a, b in pairwise(result))


@given(layout=any_layout())
def test_what_is_missing_is_what_no_owner_holds(layout: Layout[int]) -> None:
    whole = {"a": 22, "b": 7, "c": 0}
    held = {element for _, piece in layout for element in elements((piece,))}
    expected = [(tensor, i) for tensor, numel in whole.items() for i in range(numel) if (tensor, i) not in held]
    assert elements(missing(whole, layout)) == sorted(expected)


@given(layout=any_layout(), grain=st.integers(1, 9))
def test_once_gives_each_element_to_exactly_one_of_its_holders(layout: Layout[int], grain: int) -> None:
    result = once(layout, grain=grain)
    counted = Counter(element for _, piece in result for element in elements((piece,)))
    assert set(counted) == {element for _, piece in layout for element in elements((piece,))}
    assert set(counted.values()) <= {1}
    for owner, parts in result.pieces.items():
        assert set(elements(parts)) <= set(elements(layout.of(owner)))


@given(case=layouts)
def test_a_sharded_state_is_left_as_it_is(case: tuple) -> None:
    rule, sizes, world = case
    layout = rule(sizes, world)
    if rule is not replicated:
        assert once(layout).pieces == {owner: merged(parts) for owner, parts in layout.pieces.items()}


@given(sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=12), world=st.integers(1, 7))
def test_a_replicated_state_is_written_evenly(sizes: list[int], world: int) -> None:
    grain = 8
    named = {f"t{i}": numel for i, numel in enumerate(sizes)}
    written = once(replicated(named, world), grain=grain)
    numels = [written.numel(rank) for rank in range(world)]
    assert sum(numels) == sum(sizes)
    assert max(numels) - min(numels) <= 4 * grain


def test_one_large_table_is_divided_over_all_who_hold_it() -> None:
    written = once(replicated({"table": 400_000, "bias": 10}, 4))
    assert all(abs(written.numel(rank) - 100_000) <= 4096 for rank in range(4))
