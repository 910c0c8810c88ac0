"""The closed formulas, against the figures of the ZeRO paper and against themselves."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.memory import (
    Recipe,
    activation_bytes,
    elements_per_step,
    recipe,
    state_bytes,
    unit_numels,
    window_bytes,
)
from service.domain.planning import plan_spec, rank_bytes
from service.domain.presets import PRESETS, gpt_numel
from service.domain.spec import JobSpec, PrecisionSpec
from service.domain.training import TrainingSpec

BF16 = PrecisionSpec(params="bf16", reduce="bf16")
FP32 = PrecisionSpec(params="fp32")
# The paper's own: two-byte parameters and gradients, fp32 master and two moments.
PAPER = Recipe(param=2, grad=2, master=4, moments=8)


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_the_paper_s_example_of_7_5b_parameters_on_64_devices(stage: int, gigabytes: float) -> None:
    """Rajbhandari et al. 2020, figure 1."""
    total = sum(state_bytes(numel=7_500_000_000, workers=64, stage=stage, recipe=PAPER).values())
    assert round(total / 1e9, 1) == gigabytes


@pytest.mark.parametrize(
    ("stage", "whole", "shared"),
    [(0, 16, 0), (1, 4, 12), (2, 2, 14), (3, 0, 16)],
)
def test_two_byte_states_are_16p_4p_12p_2p_14p_and_16p(stage: int, whole: int, shared: int) -> None:
    numel, workers = 1_000_000, 4
    total = sum(state_bytes(numel=numel, workers=workers, stage=stage, recipe=recipe(BF16, stage=stage)).values())
    # At stage 3 it is 4 + 8 + 4 in place of 2 + 2 + 12: no resident two-byte copy, gradients in fp32.
    assert total == whole * numel + shared * numel // workers


@pytest.mark.parametrize(("stage", "whole", "shared"), [(0, 16, 0), (1, 8, 8), (2, 4, 12), (3, 0, 16)])
def test_fp32_parameters_are_their_own_master(stage: int, whole: int, shared: int) -> None:
    numel, workers = 1_000_000, 4
    total = sum(state_bytes(numel=numel, workers=workers, stage=stage, recipe=recipe(FP32, stage=stage)).values())
    assert total == whole * numel + shared * numel // workers


@pytest.mark.parametrize(
    ("training", "kept"),
    [
        ({"optimizer": {"name": "adam"}}, 8),
        ({"optimizer": {"name": "sgd"}}, 0),
        ({"optimizer": {"name": "sgd", "momentum": 0.9}}, 4),
        ({"optimizer": {"name": "adagrad"}}, 4),
        ({"optimizer": {"name": "lion"}, "ema_decay": 0.99}, 8),
        ({"ema_decay": 0.99}, 12),
    ],
)
def test_each_optimizer_costs_what_it_keeps(training: dict[str, object], kept: int) -> None:
    spec = TrainingSpec.model_validate(training)
    assert recipe(BF16, stage=2, training=spec).moments == kept
    assert recipe(FP32, stage=2, training=spec).moments == kept


def test_muon_keeps_one_moment_of_the_matrices_of_the_blocks_and_two_of_the_rest() -> None:
    spec = JobSpec.model_validate({"model": "gpt-tiny", "stage": 1, "training": {"optimizer": {"name": "muon"}}})
    shape = PRESETS["gpt-tiny"]
    matrices = shape.layers * 12 * shape.width**2
    kept = rank_bytes(spec, shape, stage=0, workers=1)["optimizer"]
    assert kept == (4 + 8) * gpt_numel(shape) - 4 * matrices


@pytest.mark.parametrize(("stage", "factor"), [(0, 2), (1, 2), (2, 5), (3, 12)])
def test_traffic_with_four_micro_batches_is_2_2_5_12(stage: int, factor: int) -> None:
    assert elements_per_step(numel=10, workers=2, stage=stage, micro_batches=4) == factor * 10


def test_one_worker_moves_nothing() -> None:
    assert elements_per_step(numel=10, workers=1, stage=3, micro_batches=4) == 0


@given(
    numel=st.integers(1, 10**9),
    workers=st.integers(1, 512),
    precision=st.sampled_from([BF16, FP32, PrecisionSpec()]),
)
def test_a_higher_stage_never_needs_more_memory(numel: int, workers: int, precision: PrecisionSpec) -> None:
    totals = [
        sum(state_bytes(numel=numel, workers=workers, stage=s, recipe=recipe(precision, stage=s)).values())
        for s in range(4)
    ]
    slack = 16  # a padded shard is at most one element of each kind larger
    assert all(low <= high + slack for high, low in itertools.pairwise(totals))


def test_units_of_a_gpt_add_up_to_its_parameters() -> None:
    shape = PRESETS["gpt-small"]
    units = unit_numels(shape)
    assert units["block"] * shape.layers + units["root"] == gpt_numel(shape)


def test_checkpointing_keeps_inputs_and_one_block() -> None:
    facts = {"micro_batch_size": 2, "seq_len": 64, "precision": FP32}
    shape = PRESETS["gpt-small"]
    kept = activation_bytes(shape, **facts, checkpointing=False)["activations_peak"]
    thrifty = activation_bytes(shape, **facts, checkpointing=True)["activations_peak"]
    assert thrifty == kept // shape.layers + shape.layers * 4 * 2 * 64 * shape.width


def test_at_stage_3_the_root_and_two_blocks_are_whole_at_a_time() -> None:
    """As the engine holds them (tests/claims measures it): one block in use, the next one under way."""
    shape = PRESETS["gpt-small"]
    units = unit_numels(shape)
    for workers in (1, 2, 4):
        gathered = [
            window_bytes(shape, workers=workers, stage=stage, precision=BF16)["gathered_peak"] for stage in range(4)
        ]
        assert gathered == [0, 0, 0, 2 * (units["root"] + 2 * units["block"])]


# ---- plans -----------------------------------------------------------------------------------------------------------


def spec(**fields: object) -> JobSpec:
    return JobSpec.model_validate({"model": "gpt2", "workers": {"min": 1, "max": 6}, **fields})


def test_a_plan_has_a_line_for_each_stage_at_each_size_worth_one() -> None:
    plan = plan_spec(spec(), capacity_bytes=None)
    assert {(choice.stage, choice.workers) for choice in plan.choices} == {
        (stage, workers) for stage in range(4) for workers in (1, 2, 4, 6)
    }
    assert plan.numel == gpt_numel(PRESETS["gpt2"])
    assert all(choice.fits is None for choice in plan.choices)


def test_the_recommendation_is_the_least_traffic_that_fits() -> None:
    stages = {choice.stage: choice for choice in plan_spec(spec(), capacity_bytes=None).choices if choice.workers == 6}
    for stage in (1, 2, 3):
        room = int(stages[stage].total_bytes / 0.9) + 1
        assert plan_spec(spec(), capacity_bytes=room).recommendation.stage == stage


def test_when_nothing_fits_the_plan_says_so_with_the_figures() -> None:
    recommendation = plan_spec(spec(), capacity_bytes=10**6).recommendation
    assert recommendation.why.startswith("nothing fits: stage 3 on 6 workers needs ")
