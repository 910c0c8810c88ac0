"""A plan, applied to real lists, gives every owner what it wants, bit by bit, and moves the least."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.layout.shards import (
    RULES,
    any_layout,
    elements,
    filled,
    flat,
    per_tensor,
    replicated,
    sizes,
    value,
    worlds,
)
from workers.layout.coverage import merged
from workers.layout.interval import Interval
from workers.layout.layout import Layout, Piece
from workers.layout.reshard import Plan, order, plan


def applied(step: Plan[int], have: Layout[int]) -> dict[int, dict[tuple[str, int], float]]:
    before = filled(have)
    after = {owner: {e: before[owner][e] for e in elements(step.kept.of(owner))} for owner in step.kept.pieces}
    for transfer in step.transfers:
        for element in elements((transfer.piece,)):
            assert element not in after.setdefault(transfer.target, {}), "an element arrives once"
            after[transfer.target][element] = before[transfer.source][element]
    return after


def renamed(layout: Layout[int], names: tuple[int, ...]) -> Layout[int]:
    return Layout({names[rank]: parts for rank, parts in layout.pieces.items()})


@given(have=any_layout(), want=any_layout(owners=5), grain=st.integers(1, 9))
def test_any_layout_becomes_any_other_with_nothing_twice_and_nothing_lost(
    have: Layout[int], want: Layout[int], grain: int
) -> None:
    want = Layout({owner: merged(parts) for owner, parts in want.pieces.items()})
    step = plan(have, want, grain=grain)
    after = applied(step, have)
    somewhere = {element for _, piece in have for element in elements((piece,))}
    for owner, parts in want.pieces.items():
        wanted = elements(parts)
        assert after.get(owner, {}) == {e: value(e) for e in wanted if e in somewhere}
        assert elements(step.missing.of(owner)) == [e for e in wanted if e not in somewhere]


@given(sizes=sizes, old=worlds, new=worlds, a=st.sampled_from(RULES), b=st.sampled_from(RULES))
def test_every_rule_becomes_every_other_at_every_world_size(sizes: dict, old: int, new: int, a, b) -> None:
    have, want = a(sizes, old), b(sizes, new)
    step = plan(have, want)
    assert not any(step.missing.pieces.values())
    after = applied(step, have)
    assert {owner: after.get(owner, {}) for owner in want.pieces} == filled(want)


@given(have=any_layout(), want=any_layout())
def test_only_what_a_target_does_not_hold_moves(have: Layout[int], want: Layout[int]) -> None:
    somewhere = {element for _, piece in have for element in elements((piece,))}
    least = sum(
        len((set(elements(parts)) & somewhere) - set(elements(have.of(owner)))) for owner, parts in want.pieces.items()
    )
    want = Layout({owner: merged(parts) for owner, parts in want.pieces.items()})
    assert plan(have, want).moved_numel == least


def test_a_round_through_four_world_sizes_keeps_every_element() -> None:
    sizes = {"a": 7, "b": 13, "c": 1, "d": 5}
    held = filled(flat(sizes, 4))
    layout = flat(sizes, 4)
    for world in (3, 2, 4):
        step = plan(layout, flat(sizes, world))
        layout, held = flat(sizes, world), applied(step, layout)
    assert held == filled(flat(sizes, 4))


def test_sources_that_hold_the_same_are_loaded_evenly() -> None:
    everything = replicated({"table": 90_000, "bias": 100}, 3)
    joiner = Layout({3: everything.of(0)})
    sent = dict.fromkeys(range(3), 0)
    for transfer in plan(everything, joiner).transfers:
        sent[transfer.source] += transfer.piece.numel
    assert max(sent.values()) < 1.2 * min(sent.values())


def test_a_dead_rank_leaves_exactly_its_own_shard_missing() -> None:
    sizes = {"a": 10, "b": 20}
    before = flat(sizes, 3)
    survivors = Layout({rank: before.of(rank) for rank in (0, 2)})
    step = plan(survivors, renamed(flat(sizes, 2), (0, 2)))
    lacking = [piece for _, piece in step.missing]
    assert merged(lacking) == merged(before.of(1))


def test_plans_are_equal_on_every_rank() -> None:
    have, want = replicated({"a": 50_000, "b": 7}, 4), flat({"a": 50_000, "b": 7}, 3)
    assert plan(have, want) == plan(have, want)


def moved(have: Layout[int], want: Layout[int], ranks: tuple[int, ...]) -> int:
    return plan(have, renamed(want, ranks)).moved_numel


@given(size=st.integers(1, 60), old=worlds, new=worlds, gone=st.sets(st.integers(0, 4)))
def test_the_chosen_order_moves_as_little_as_any(size: int, old: int, new: int, gone: set[int]) -> None:
    before, want = flat({"a": size}, old), flat({"a": size}, new)
    survivors = [rank for rank in range(old) if rank not in gone][:new]
    joiners = [10 + i for i in range(new - len(survivors))]
    have = Layout({rank: before.of(rank) for rank in survivors})
    chosen = order(have=have, survivors=survivors, joiners=joiners, want=want)
    assert sorted(chosen) == sorted([*survivors, *joiners])
    least = min(moved(have, want, ranks) for ranks in permutations([*survivors, *joiners]))
    assert moved(have, want, chosen) == least


@given(sizes=sizes, old=worlds, new=worlds, rule=st.sampled_from(RULES))
def test_the_chosen_order_is_never_worse_than_joiners_last(sizes: dict, old: int, new: int, rule) -> None:
    survivors = list(range(min(old, new)))
    joiners = list(range(10, 10 + new - len(survivors)))
    have = Layout({rank: rule(sizes, old).of(rank) for rank in survivors})
    want = rule(sizes, new)
    chosen = order(have=have, survivors=survivors, joiners=joiners, want=want)
    assert moved(have, want, chosen) <= moved(have, want, (*survivors, *joiners))


@pytest.mark.parametrize("rule", [flat, per_tensor])
def test_a_third_worker_joins_in_the_middle_and_moves_a_third_instead_of_a_half(rule) -> None:
    sizes = {"a": 6000, "b": 1200}
    have, want = rule(sizes, 2), rule(sizes, 3)
    chosen = order(have=have, survivors=[0, 1], joiners=[9], want=want)
    assert chosen == (0, 9, 1)
    assert moved(have, want, chosen) == 7200 // 3
    assert moved(have, want, (0, 1, 9)) == 7200 // 2


def test_a_worker_that_leaves_a_replicated_state_moves_nothing() -> None:
    have = replicated({"a": 100}, 3)
    assert moved(have, replicated({"a": 100}, 2), (0, 2)) == 0


def test_pieces_of_a_tensor_nobody_has_are_missing_whole() -> None:
    want = Layout({0: (Piece("new", Interval(0, 5)),)})
    step = plan(Layout({}), want)
    assert (step.transfers, step.missing.of(0)) == ((), want.of(0))
