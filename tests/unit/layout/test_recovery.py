"""The newest step of which every element is still somewhere, and who mirrors whom."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.layout.shards import flat
from workers.layout.buddies import choose
from workers.layout.coverage import merged
from workers.layout.layout import Layout
from workers.layout.recovery import newest_complete_step

SIZES = {"a": 10, "b": 20, "empty": 0}


def without(layout: Layout[int], *lost: int) -> Layout[int]:
    return Layout({rank: parts for rank, parts in layout.pieces.items() if rank not in lost})


def test_a_dead_rank_sends_the_group_back_to_the_newest_whole_step() -> None:
    shards = flat(SIZES, 3)
    disk = Layout({"disk": tuple(piece for _, piece in shards)})
    found = newest_complete_step(whole=SIZES, held={120: without(shards, 1), 100: disk, 80: disk})
    assert found is not None
    assert (found.step, found.held) == (100, disk)
    assert found.passed_over == ((120, merged(shards.of(1))),)


def test_a_mirror_of_the_dead_ranks_shard_loses_no_step() -> None:
    shards = flat(SIZES, 3)
    mirrored = Layout({**without(shards, 1).pieces, 2: shards.of(2) + shards.of(1)})
    found = newest_complete_step(whole=SIZES, held={120: mirrored})
    assert found is not None
    assert found.step == 120


def test_survivors_one_step_apart_are_not_mixed() -> None:
    shards = flat(SIZES, 2)
    assert newest_complete_step(whole=SIZES, held={7: without(shards, 0), 8: without(shards, 1)}) is None


def test_with_nothing_held_there_is_no_step() -> None:
    assert newest_complete_step(whole=SIZES, held={}) is None


nodes = st.lists(st.integers(0, 3), max_size=12).map(lambda places: {i: f"node-{n}" for i, n in enumerate(places)})


@given(nodes=nodes)
def test_every_worker_has_one_buddy_and_is_one_never_its_own(nodes: dict[int, str]) -> None:
    buddies = choose(nodes)
    expected = sorted(nodes) if len(nodes) > 1 else []
    assert sorted(buddies) == sorted(buddies.values()) == expected
    assert all(worker != buddy for worker, buddy in buddies.items())


@given(nodes=nodes)
def test_buddies_share_a_machine_only_where_it_has_more_than_half_of_all(nodes: dict[int, str]) -> None:
    shared = sum(nodes[worker] == nodes[buddy] for worker, buddy in choose(nodes).items())
    largest = max(Counter(nodes.values()).values(), default=0)
    # On one machine alone everybody shares; else no permutation has fewer than these.
    assert shared == max(0, 2 * largest - len(nodes)) * (len(nodes) > 1)
