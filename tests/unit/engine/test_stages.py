from __future__ import annotations

from itertools import pairwise

import pytest

from workers.engine.states import StateKind
from workers.engine.zero.stages import STAGES, stage_of


def test_each_stage_shards_all_that_the_one_before_shards_and_one_kind_more() -> None:
    added = [after.sharded - before.sharded for before, after in pairwise(STAGES)]
    assert added[1:] == [{StateKind.GRAD}, {StateKind.PARAM}]
    assert added[0] == frozenset(StateKind) - {StateKind.GRAD, StateKind.PARAM}
    assert all(before.sharded < after.sharded for before, after in pairwise(STAGES))


@pytest.mark.parametrize("number", [-1, 4])
def test_another_stage_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match=f"stage {number}"):
        stage_of(number)
