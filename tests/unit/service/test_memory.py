"""The closed formulas, against the figures of the ZeRO paper and against themselves."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.memory import (
    Recipe,
    activation_bytes,
    elements_per_step,
    fsdp_elements_per_step,
    recipe,
    state_bytes,
    units_of,
    window_bytes,
)
from service.domain.memory_page import gigabytes, page
from service.domain.offload import by_tier, fitting_ratio, resting
from service.domain.planning import plan_spec, rank_bytes
from service.domain.presets import PRESETS
from service.domain.profile import profile_of
from service.domain.spec import JobSpec, Offload, PrecisionSpec
from service.domain.training import TrainingSpec
from service.domain.worker_memory import WorkerMemory

ROOT = Path(__file__).resolve().parents[3]
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
    ("ranks", "rounded"), [(4, (52.5, 41.2, 30)), (16, (35.6, 21.6, 7.5)), (1024, (30.1, 15.1, 0.12))]
)
def test_the_paper_s_table_by_number_of_devices(ranks: int, rounded: tuple[float, ...]) -> None:
    """Table 1; it says 41.3 where the formula gives 41.25."""
    assert [gigabytes(stage, ranks=ranks) for stage in (1, 2, 3)] == pytest.approx(rounded, rel=0.025)


def test_the_page_of_the_docs_is_what_the_formulas_say() -> None:
    """To renew it: python -m service.domain.memory_page > docs/memory.md"""
    assert (ROOT / "docs" / "memory.md").read_text() == page()


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
    profile = profile_of(spec)
    assert profile is not None
    kept = rank_bytes(spec, profile, stage=0, workers=1)["optimizer"]["device"]
    assert kept == (4 + 8) * shape.numel - 4 * matrices


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
    units = units_of(shape)
    assert units.block * units.blocks + units.root == shape.numel


def test_checkpointing_keeps_inputs_and_one_block() -> None:
    facts = {"micro_batch_size": 2, "seq_len": 64, "precision": FP32}
    shape = PRESETS["gpt-small"]
    kept = activation_bytes(shape, **facts, checkpointing=False)
    thrifty = activation_bytes(shape, **facts, checkpointing=True)
    inputs = 4 * 2 * 64 * shape.width
    block = (kept["activations_peak"] - 2 * inputs) // shape.layers
    assert thrifty["activations_peak"] == (shape.layers + 2) * inputs
    # Its own input is there already.
    others = sum(kept.values()) - sum(thrifty.values())
    assert others == (shape.layers - 1) * (block - inputs)


def test_at_stage_3_the_root_and_two_blocks_are_whole_at_a_time() -> None:
    """As the engine holds them (tests/claims measures it): one block in use, the next one under way."""
    shape = PRESETS["gpt-small"]
    units = units_of(shape)
    for workers in (1, 2, 4):
        gathered = [
            window_bytes(units, workers=workers, stage=stage, precision=BF16)["gathered_peak"] for stage in range(4)
        ]
        assert gathered == [0, 0, 0, 2 * (units.root + 2 * units.block)]


# ---- plans -----------------------------------------------------------------------------------------------------------


def spec(**fields: object) -> JobSpec:
    return JobSpec.model_validate({"model": "gpt2", "workers": {"min": 1, "max": 6}, **fields})


def test_a_plan_has_a_line_for_each_stage_at_each_size_worth_one() -> None:
    plan = plan_spec(spec(), memory=None)
    assert {(choice.stage, choice.workers) for choice in plan.choices} == {
        (stage, workers) for stage in range(4) for workers in (1, 2, 4, 6)
    }
    assert plan.numel == PRESETS["gpt2"].numel
    assert all(choice.fits is None for choice in plan.choices)


def test_the_recommendation_is_the_least_traffic_that_fits() -> None:
    choices = [choice for choice in plan_spec(spec(), memory=None).choices if choice.workers == 6]
    needs = {choice.stage: choice.total_bytes for choice in choices if choice.offload == "none"}
    for stage in (1, 2, 3):
        room = int(needs[stage] / 0.9) + 1
        recommendation = plan_spec(spec(), memory=WorkerMemory(device_bytes=room)).recommendation
        assert (recommendation.stage, recommendation.offload) == (stage, "none")
    room = int(needs[3] / 0.9) - 1
    assert plan_spec(spec(), memory=WorkerMemory(device_bytes=room)).recommendation.offload == "nvme"
    asked = plan_spec(spec(offload="nvme"), memory=WorkerMemory(device_bytes=10**12)).recommendation
    assert (asked.stage, asked.offload) == (1, "nvme")


STATES = ("params", "grads", "optimizer")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("stage", range(4))
def test_offload_moves_states_from_tier_to_tier_and_adds_none(stage: int, precision: str) -> None:
    plan = plan_spec(spec(precision=precision), memory=None)
    at = {choice.offload: choice for choice in plan.choices if (choice.stage, choice.workers) == (stage, 4)}
    assert set(at) == {"none", "cpu", "nvme"}
    assert len({choice.states_bytes for choice in at.values()}) == 1
    for kind in STATES:
        assert len({sum(choice.bytes_by_kind[kind].values()) for choice in at.values()}) == 1
        assert set(at["none"].bytes_by_kind[kind]) == {"device"}
    assert set(at["nvme"].bytes_by_kind["optimizer"]) == {"nvme"}
    assert set(at["nvme"].bytes_by_kind["grads"]) == {"cpu" if stage >= 2 else "device"}
    assert set(at["nvme"].bytes_by_kind["params"]) == {"nvme" if stage == 3 else "device"}
    assert at["nvme"].bytes_by_kind["staging_peak"]["cpu"] < at["nvme"].states_bytes


@given(budget=st.integers(0, 10**10), optimizer=st.sampled_from(["cpu", "nvme"]), stage=st.integers(0, 3))
def test_an_automatic_ratio_is_the_least_that_fits(budget: int, optimizer: str, stage: int) -> None:
    asked = Offload.model_validate({"optimizer": optimizer, "ratio": "auto"})
    states = state_bytes(numel=10**8, workers=2, stage=stage, recipe=recipe(BF16, stage=stage))
    tiers = resting(asked, stage=stage)
    ratio = fitting_ratio(asked, states, tiers=tiers, passing_bytes=10**8, budget_bytes=budget)

    def near(part: float) -> int:
        return 10**8 + sum(kind.get("device", 0) for kind in by_tier(states, tiers=tiers, ratio=part).values())

    assert 0 <= ratio <= 1
    assert near(ratio) <= budget + 3 or ratio == 1
    assert ratio == 0 or near(ratio - 0.001) > budget - 3


def test_a_ratio_of_one_s_own_has_a_line_of_its_own() -> None:
    plan = plan_spec(spec(offload={"optimizer": "cpu", "params": "none", "ratio": 0.5}), memory=None)
    own = [choice for choice in plan.choices if choice.offload == "cpu, params none, ratio 0.5"]
    assert len(own) == 16
    for choice in own:
        optimizer = choice.bytes_by_kind["optimizer"]
        assert abs(optimizer["cpu"] - optimizer["device"]) <= 1
    assert plan.recommendation.offload == "cpu, params none, ratio 0.5"


def test_when_nothing_fits_the_plan_says_so_with_the_figures() -> None:
    recommendation = plan_spec(spec(), memory=WorkerMemory(device_bytes=10**6)).recommendation
    assert recommendation.why.startswith("nothing fits: stage 3, offload nvme on 6 workers needs ")


@pytest.mark.parametrize(("workers", "parts"), [(4, 2), (6, 2), (3, 3)])
def test_a_hybrid_holds_a_part_per_shard_and_sums_its_copies_once_in_a_step(workers: int, parts: int) -> None:
    document = {"model": "gpt-tiny", "engine": "fsdp", "stage": "HYBRID_SHARD", "shard_size": 2, "workers": workers}
    spec = JobSpec.model_validate(document)
    profile = profile_of(spec)
    assert profile is not None
    plain = spec.model_copy(update={"shard_size": None})
    for kind in ("params", "grads", "optimizer"):
        ours = rank_bytes(spec, profile, stage=3, workers=workers)[kind]
        assert ours == rank_bytes(plain, profile, stage=3, workers=parts)[kind]
    moved = {"numel": 100, "root_numel": 10, "workers": workers, "stage": 3, "micro_batches": 2}
    copies = 2 * math.ceil(100 / parts) if parts < workers else 0
    assert fsdp_elements_per_step(**moved, parts=parts) == 2 * 290 + copies
