"""The faults of other engines, each as a scenario that must end like one plain process on the whole batch.

Those of offload, of resuming, of exports and of the loss scale are in `test_offload`, `test_optimizers`,
`test_odd_models_are_saved_whole` and `tests/unit/engine/test_loss_scale`.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from tests.claims.awkward import (
    AroundFrozen,
    Faint,
    Halves,
    InPlace,
    Listed,
    Looking,
    Nested,
    Normed,
    Recurrent,
    Sparse,
)
from tests.claims.ranks import on_ranks, world_group
from tests.claims.scenarios import (
    Adapted,
    Branches,
    Layer,
    Micro,
    Odd,
    Recomputed,
    RecomputedInside,
    Repeated,
    Scenario,
    Tied,
    TiedBlocks,
    plain_run,
)
from tests.claims.training import zero_engine
from workers.engine.protocol import Engine
from workers.engine.states import StateKind
from workers.engine.units import UnitRule


def _plain(count: int, way: str = "head") -> list[Micro]:
    return [(number, way) for number in range(count)]


def _freeze_head_on_even_steps(model: nn.Module, step: int) -> None:
    assert isinstance(model, Branches)
    model.head.requires_grad_(step % 2 == 1)


SCENARIOS = {
    "every_backward_counts_whatever_their_number_in_a_step": Scenario(
        model=Branches, micros=lambda step: _plain([2, 6, 1][step - 1])
    ),
    "a_gradient_in_some_micro_batches_only_counts_once_and_leaves_nothing_stale": Scenario(
        model=Branches, micros=lambda step: [(1, ""), (2, "head" if step != 3 else ""), (3, ""), (4, ""), (5, "")]
    ),
    "unused_parameters_and_a_branch_used_on_one_rank_only": Scenario(
        model=Branches, micros=lambda step: [(1, "head"), (2, "skip1"), (3, "skip0 skip2"), (4, "skip1 head")]
    ),
    "a_block_that_no_rank_used_does_not_age": Scenario(
        model=Branches, micros=lambda step: _plain(4, "skip1 head" if step % 2 else "head")
    ),
    "a_parameter_frozen_on_alternate_steps_keeps_its_own_step_and_bias_correction": Scenario(
        model=Branches, micros=lambda step: _plain(3), before=_freeze_head_on_even_steps
    ),
    "a_tied_embedding_of_seven_rows": Scenario(model=Tied, micros=lambda step: _plain(3)),
    "a_matrix_tied_across_blocks": Scenario(model=TiedBlocks, micros=lambda step: _plain(4)),
    "a_norm_of_gradients_near_epsilon": Scenario(model=Faint, micros=lambda step: _plain(4), clip_norm=1e-9),
    "no_clipping": Scenario(model=Branches, micros=lambda step: _plain(4), clip_norm=None),
    "frozen_weights_under_recomputation": Scenario(
        model=partial(Recomputed, Adapted, reentrant=False), micros=lambda step: _plain(3)
    ),
    "frozen_weights_under_reentrant_recomputation": Scenario(
        model=partial(Recomputed, Adapted, reentrant=True), micros=lambda step: _plain(3)
    ),
    "blocks_under_recomputation": Scenario(
        model=partial(Recomputed, Layer, reentrant=False), micros=lambda step: _plain(3)
    ),
    "blocks_under_reentrant_recomputation": Scenario(
        model=partial(Recomputed, Layer, reentrant=True), micros=lambda step: _plain(3)
    ),
    "blocks_that_recompute_inside": Scenario(model=RecomputedInside, micros=lambda step: _plain(3)),
    "units_of_several_modules": Scenario(
        model=Branches, micros=lambda step: _plain(4, "skip1 head"), units=UnitRule(min_params=150)
    ),
    "every_linear_a_unit": Scenario(model=Branches, micros=lambda step: _plain(4), units=UnitRule(layers=["Linear"])),
    "blocks_used_twice": Scenario(model=Repeated, micros=lambda step: _plain(3)),
    "blocks_used_twice_under_reentrant_recomputation": Scenario(
        model=partial(Recomputed, Layer, reentrant=True, repeats=2), micros=lambda step: _plain(3)
    ),
    "weights_computed_from_parameters": Scenario(model=Normed, micros=lambda step: _plain(3)),
    "very_many_tiny_parameters_and_a_block_without_any": Scenario(model=Listed, micros=lambda step: _plain(3)),
    "blocks_run_without_gradients_first": Scenario(model=Looking, micros=lambda step: _plain(3)),
    "outputs_changed_in_place": Scenario(model=InPlace, micros=lambda step: _plain(3)),
    "blocks_of_blocks_that_hand_on_tuples": Scenario(model=Nested, micros=lambda step: _plain(3)),
    "units_inside_other_units_blocks": Scenario(
        model=Nested, micros=lambda step: _plain(3), units=UnitRule(layers=["Layer"])
    ),
    "a_block_frozen_whole_and_one_in_part": Scenario(model=Halves, micros=lambda step: _plain(3)),
    "frozen_in_part_and_every_linear_a_unit": Scenario(
        model=Halves, micros=lambda step: _plain(3), units=UnitRule(layers=["Linear"])
    ),
    "recomputation_with_dropout_around_a_frozen_unit": Scenario(
        model=partial(AroundFrozen, reentrant=False), micros=lambda step: _plain(5)
    ),
    "reentrant_recomputation_with_dropout_around_a_frozen_unit": Scenario(
        model=partial(AroundFrozen, reentrant=True), micros=lambda step: _plain(5)
    ),
    "recurrent_blocks": Scenario(model=Recurrent, micros=lambda step: _plain(3)),
    "sparse_gradients_of_embeddings": Scenario(model=Sparse, micros=lambda step: _plain(3)),
    "scalar_empty_non_contiguous_and_frozen_parameters": Scenario(model=Odd, micros=lambda step: _plain(5)),
}


# What a rank ends with: (tensor, start, values) of the masters that it holds, and the norm of each step.
End = tuple[list[tuple[str, int, torch.Tensor]], list[float]]


def run_scenario(engine: Engine, scenario: Scenario, model: nn.Module, rank: int, world: int) -> End:
    norms = []
    for step in range(1, scenario.steps + 1):
        scenario.before(model, step)
        micros = list(scenario.micros(step))
        mine = micros[rank::world]
        calls = -(-len(micros) // world)
        for call in range(calls):
            micro, weight = (mine[call], 1 / len(micros)) if call < len(mine) else (micros[0], 0.0)
            torch.manual_seed(micro[0])
            engine.micro_step(micro, weight=weight, last=call == calls - 1)
        norms.append(engine.step(lr_scale=1.0).grad_norm)
    assert engine.footprint().gathered_bytes == 0, "whole units left"
    return _masters(engine, rank), norms


def _masters(engine: Engine, rank: int) -> list[tuple[str, int, torch.Tensor]]:
    pieces = engine.layout().of(rank)
    return [(p.tensor, p.interval.start, engine.export(StateKind.MASTER, p).clone()) for p in pieces]


def _all_scenarios(rank: int, world: int) -> dict[str, list[End]]:
    ends = {}
    for name, scenario in SCENARIOS.items():
        ends[name] = []
        for stage in range(4):
            model = scenario.build()
            engine = zero_engine(model, world_group(), stage=stage, clip_norm=scenario.clip_norm, units=scenario.units)
            ends[name].append(run_scenario(engine, scenario, model, rank, world))
    return ends


@pytest.fixture(scope="module", params=[2, 3])
def ends(
    request: pytest.FixtureRequest,
) -> list[dict[str, list[End]]]:
    """All scenarios at all stages in one start of the ranks."""
    return on_ranks(request.param, _all_scenarios)


@pytest.mark.parametrize("name", SCENARIOS)
def test_ends_like_one_plain_process(name: str, ends: list[dict[str, list]]) -> None:
    expected, expected_norms = plain_run(SCENARIOS[name])
    for rank, of_rank in enumerate(ends):
        for stage, (masters, norms) in enumerate(of_rank[name]):
            where = f"stage {stage}, rank {rank}"
            torch.testing.assert_close(torch.tensor(norms), torch.tensor(expected_norms), rtol=1e-5, atol=1e-12)
            assert masters, where
            for tensor, start, values in masters:
                wanted = expected[tensor].reshape(-1)[start : start + values.numel()]
                torch.testing.assert_close(values, wanted, rtol=1e-5, atol=1e-6, msg=partial(_at, f"{where}, {tensor}"))


def _at(where: str, message: str) -> str:
    return f"{where}: {message}"


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_rank_sees_one_and_the_same_norm(name: str, ends: list[dict[str, list]]) -> None:
    for stage in range(4):
        assert len({tuple(of_rank[name][stage][1]) for of_rank in ends}) == 1


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_element_is_held(name: str, ends: list[dict[str, list]]) -> None:
    model = SCENARIOS[name].build()
    for stage in range(4):
        held: dict[str, set[int]] = {}
        for of_rank in ends:
            for tensor, start, values in of_rank[name][stage][0]:
                held.setdefault(tensor, set()).update(range(start, start + values.numel()))
        for tensor, param in model.named_parameters():
            assert len(held.get(tensor, ())) == param.numel()
