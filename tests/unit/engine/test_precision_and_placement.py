from __future__ import annotations

import pytest
import torch

from workers.engine.placement import Placement
from workers.engine.precision import Precision
from workers.engine.states import StateKind
from workers.tiers.protocol import StateKey


def test_fp32_is_its_own_master_and_leaves_inputs_alone() -> None:
    batch = {"x": torch.ones(2, dtype=torch.float64)}
    assert Precision().master_is_param
    assert Precision().cast_inputs(batch) is batch


def test_bf16_casts_floating_inputs_and_nothing_else() -> None:
    cast = Precision(params=torch.bfloat16).cast_inputs({"x": torch.ones(2), "tokens": [torch.ones(2).long()], "n": 3})
    assert cast["x"].dtype == torch.bfloat16
    assert cast["tokens"][0].dtype == torch.int64
    assert cast["n"] == 3


def test_gradients_travel_as_parameters_unless_told_otherwise() -> None:
    assert Precision(params=torch.bfloat16).reduce_dtype == torch.bfloat16
    assert Precision(params=torch.bfloat16, reduce=torch.float32).reduce_dtype == torch.float32


def test_an_integer_dtype_is_refused_with_its_role() -> None:
    with pytest.raises(ValueError, match=r"precision\.reduce"):
        Precision(reduce=torch.int8)


def test_a_placement_gives_back_what_was_committed_and_counts_it() -> None:
    placement = Placement.of(torch.device("cpu"))
    key = StateKey(0, StateKind.MASTER)
    placement.allocate(key, numel=6, dtype=torch.float32)
    placement.allocate(StateKey(1, StateKind.MASTER), numel=2, dtype=torch.float32)
    placement.allocate(StateKey(0, StateKind.GRAD), numel=6, dtype=torch.bfloat16)
    placement.commit(key, torch.arange(6.0))
    assert torch.equal(placement.fetch(key), torch.arange(6.0))
    assert placement.size_bytes() == {StateKind.MASTER: {"device": 32}, StateKind.GRAD: {"device": 12}}
    assert placement.renewed().size_bytes() == {}
    assert torch.equal(placement.fetch(key), torch.arange(6.0))
