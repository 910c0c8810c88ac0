from __future__ import annotations

from itertools import pairwise

import pytest

from workers.engine.states import StateKind
from workers.engine.zero.stages import STAGES, stage_of


@pytest.mark.parametrize(("stage", "k", "expected"), [(0, 3, 2), (1, 3, 2), (2, 1, 2), (2, 3, 4), (3, 1, 3), (3, 3, 9)])
def test_a_stage_moves_the_elements_of_the_paper(stage: int, k: int, expected: int) -> None:
    assert stage_of(stage).elements_per_step(params=10, micro_batches=k) == 10 * expected


@pytest.mark.parametrize(("stage", "expected"), [(0, 4), (1, 4), (2, 4), (3, 9)])
def test_where_every_micro_batch_crosses_the_group_the_lower_stages_move_as_much_as_stage_2(
    stage: int, expected: int
) -> None:
    assert stage_of(stage, ordered=True).elements_per_step(params=10, micro_batches=3) == 10 * expected


def test_each_stage_shards_all_that_the_one_before_shards_and_one_kind_more() -> None:
    added = [after.sharded - before.sharded for before, after in pairwise(STAGES)]
    assert added[1:] == [{StateKind.GRAD}, {StateKind.PARAM}]
    assert added[0] == frozenset(StateKind) - {StateKind.GRAD, StateKind.PARAM}
    assert all(before.sharded < after.sharded for before, after in pairwise(STAGES))


@pytest.mark.parametrize("number", [-1, 4])
def test_another_stage_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match=f"stage {number}"):
        stage_of(number)
