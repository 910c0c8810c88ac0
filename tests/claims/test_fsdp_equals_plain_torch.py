"""Claim: FSDP2 behind the engine protocol trains as one process of plain torch does, with what it cannot do guarded."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from service.domain.batching import rounds
from service.domain.memory import fsdp_elements_per_step
from tests.claims.ranks import on_ranks, world_group
from tests.claims.scenarios import WIDTH, Layer, Micro, Scenario, data, plain_run
from tests.claims.test_known_faults import SCENARIOS, End, run_scenario
from tests.claims.training import MICRO_BATCHES, SHAPE, batch, fsdp_engine, gpt, plain_curve, train_step
from workers.engine.fsdp2.engine import LostGradients, UnevenUnits
from workers.engine.fsdp2.sharding import SparseGradients
from workers.engine.precision import Precision
from workers.engine.protocol import Engine
from workers.engine.units import UnitRule
from workers.optimizers.kinds import StateKind

STEPS = 20
STAGES = (3, 2, 0)
# FSDP2 cannot, and is made to say so below.
REFUSED = {
    "unused_parameters_and_a_branch_used_on_one_rank_only",
    "blocks_used_twice_under_reentrant_recomputation",
    "sparse_gradients_of_embeddings",
}


class Mixed(nn.Module):
    """Blocks whose parameters have two dtypes, and a head of a third that no rank uses before the last micro-batch."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, micro: Micro) -> Tensor:
        x = data(micro[0]).to(self.head.weight.dtype)
        for block in self.blocks:
            x = block(x)
        loss = x.square().mean()
        return loss + self.head(x).square().mean() if "head" in micro[1] else loss


def _late_head(step: int) -> list[Micro]:
    return [(1, ""), (2, ""), (3, ""), (4, "head")]


GUARDS = {name: scenario for name, scenario in SCENARIOS.items() if name not in REFUSED} | {
    "a_head_used_late_on_one_rank": Scenario(model=Mixed, micros=_late_head),
}


def _curves(rank: int, world: int) -> dict[tuple[int, int], list[tuple[float, float]]]:
    """(stage, micro-batches of the step) -> (loss, norm) of each step."""
    curves = {}
    for stage in STAGES:
        # One micro-batch each; three each, but for a rank that joins the last with zeros.
        for count in (world, 3 * world - (world > 1)):
            engine = fsdp_engine(gpt(), world_group(), stage=stage)
            steps = range(1, STEPS + 1)
            curves[stage, count] = [train_step(engine, s, rank=rank, world=world, count=count) for s in steps]
            assert engine.footprint().gathered_bytes == 0
    return curves


@pytest.mark.parametrize("world", [1, 2, 3])
def test_each_stage_gives_the_curve_of_plain_torch_for_any_accumulation(world: int) -> None:
    of_ranks = on_ranks(world, _curves)
    for stage, count in of_ranks[0]:
        expected = torch.tensor(plain_curve(gpt(), STEPS, count=count))
        for curves in of_ranks:
            torch.testing.assert_close(torch.tensor(curves[stage, count]), expected, rtol=1e-5, atol=0)


def _hybrid(rank: int, world: int) -> tuple[list[list[tuple[float, float]]], float, int]:
    """Two copies of the state, each in shards of two ranks; everything on the CPU's tier; units by class."""
    curves, moved, held = [], 0.0, 0
    for options in ({"offload": True}, {"units": UnitRule(layers=["Block"])}, {"shard_size": 2}):
        engine = fsdp_engine(gpt(), world_group(), stage=3, **options)
        curves.append([train_step(engine, step, rank=rank, world=world) for step in range(1, 6)])
        # The first step shows the parameters once; the second and what follows are as planned.
        before = sum(engine.traffic().elements.values())
        train_step(engine, 6, rank=rank, world=world)
        moved = sum(engine.traffic().elements.values()) - before
        held = sum(engine.footprint().by_kind["param"].values())
    return curves, moved, held


def test_hybrid_shards_and_offload_give_the_same_curve_and_move_what_the_planner_says() -> None:
    expected = torch.tensor(plain_curve(gpt(), 5))
    root = SHAPE.numel - SHAPE.layers * SHAPE.block_numel
    turns = rounds(MICRO_BATCHES, world_size=4)
    planned = fsdp_elements_per_step(
        numel=SHAPE.numel, root_numel=root, workers=4, stage=3, micro_batches=turns, parts=2
    )
    for curves, moved, held in on_ranks(4, _hybrid):
        for curve in curves:
            torch.testing.assert_close(torch.tensor(curve), expected, rtol=1e-5, atol=0)
        assert moved == pytest.approx(planned, rel=0.02)
        assert held == pytest.approx(4 * SHAPE.numel / 2, rel=0.02)


def _guards(rank: int, world: int) -> dict[str, list[End]]:
    ends = {}
    for name, scenario in GUARDS.items():
        ends[name] = []
        for stage in STAGES:
            model = scenario.build()
            build = partial(fsdp_engine, clip_norm=scenario.clip_norm, units=scenario.units)
            ends[name].append(run_scenario(build(model, world_group(), stage=stage), scenario, model, rank, world))
    return ends


@pytest.fixture(scope="module")
def ends() -> list[dict[str, list[End]]]:
    return on_ranks(3, _guards)


@pytest.mark.parametrize("name", GUARDS)
def test_ends_like_one_plain_process(name: str, ends: list[dict[str, list[End]]]) -> None:
    expected, expected_norms = plain_run(GUARDS[name])
    for of_rank in ends:
        for masters, norms in of_rank[name]:
            assert norms == pytest.approx(expected_norms, rel=1e-5)
            for tensor, start, values in masters:
                wanted = expected[tensor].reshape(-1)[start : start + values.numel()]
                torch.testing.assert_close(values, wanted, rtol=1e-5, atol=1e-6)


def _late_use_in_two_bytes(rank: int, world: int) -> list[float]:
    torch.manual_seed(3)
    model = Mixed()
    model.blocks[0].norm.to(torch.bfloat16)
    model.blocks[1].up.weight = nn.Parameter(model.blocks[1].up.weight.detach().t().contiguous().t())
    precision = Precision(params=torch.bfloat16, reduce=torch.float32)
    engine = fsdp_engine(model, world_group(), stage=3, precision=precision)
    norms = []
    for _ in range(3):
        for number, way in enumerate(["", "head"]):
            engine.micro_step((number, way), weight=1 / (2 * world), last=way == "head")
        norms.append(engine.step(lr_scale=1.0).grad_norm)
    return norms


def test_mixed_dtypes_and_a_late_first_use_train_in_two_bytes() -> None:
    first, second = on_ranks(2, _late_use_in_two_bytes)
    assert first == second
    assert all(0 < norm < 100 for norm in first)


def _masters(engine: Engine, rank: int) -> list[Tensor]:
    """A copy of all that this rank holds of the parameters."""
    return [engine.export(StateKind.MASTER, piece).clone() for piece in engine.layout().of(rank)]


def _different_units(rank: int, world: int) -> str:
    scenario = SCENARIOS["every_linear_a_unit"]
    model = scenario.build()
    engine = fsdp_engine(model, world_group(), stage=2)
    # Both skip one block, and the blocks are of one size: nothing fails on the wire.
    engine.micro_step((1, f"skip{rank}"), weight=1 / world, last=True)
    before = _masters(engine, rank)
    with pytest.raises(UnevenUnits) as caught:
        engine.step(lr_scale=1.0)
    assert all(map(torch.equal, before, _masters(engine, rank)))
    return str(caught.value)


def test_ranks_that_run_different_units_are_told_and_nothing_is_updated() -> None:
    for told in on_ranks(2, _different_units):
        assert "different units" in told


def _twice_under_reentrant_recomputation(rank: int, world: int) -> str:
    engine = fsdp_engine(SCENARIOS["blocks_used_twice_under_reentrant_recomputation"].build(), world_group(), stage=3)
    with pytest.raises(LostGradients) as caught:
        engine.micro_step((rank, ""), weight=1 / world, last=True)
    return str(caught.value)


def test_gradients_that_fsdp_would_lose_are_an_error() -> None:
    for told in on_ranks(2, _twice_under_reentrant_recomputation):
        assert "use_reentrant=False" in told


def _sparse(rank: int, world: int) -> str:
    with pytest.raises(SparseGradients) as caught:
        fsdp_engine(SCENARIOS["sparse_gradients_of_embeddings"].build(), world_group(), stage=2)
    return str(caught.value)


def test_sparse_gradients_are_refused_before_anything_is_sharded() -> None:
    (told,) = on_ranks(1, _sparse)
    assert "['table', 'blocks.0', 'blocks.1'] (3 modules) are sparse" in told


def _overflow(rank: int, world: int) -> list[bool]:
    engine = fsdp_engine(gpt(), world_group(), stage=3)
    train_step(engine, 1, rank=rank, world=world)
    before = _masters(engine, rank)
    engine.micro_step(batch(2, rank), weight=float("inf") if rank == 1 else 0.5, last=True)
    skipped = engine.step(lr_scale=1.0).skipped
    same = all(map(torch.equal, before, _masters(engine, rank)))
    loss, norm = train_step(engine, 2, rank=rank, world=world)
    return [skipped, same, loss > 0, norm > 0]


def test_a_gradient_that_is_not_finite_on_one_rank_skips_the_step_on_all() -> None:
    assert on_ranks(2, _overflow) == [[True] * 4] * 2
