"""The whole engine in a world of one with its state on other tiers: the same bits, wherever they rest."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.groups import Seat, engine_at
from tests.unit.engine.test_engine_alone import equal, net, state, train
from workers.engine.placement import Placement
from workers.engine.precision import Precision
from workers.engine.states import StateKind
from workers.engine.units import UnitRule
from workers.tiers.protocol import StateKey

CPU = torch.device("cpu")
# What a user may ask for: tiers of the optimizer's state and of stage 3's parameters, and the part that goes there.
PLACES: dict[str, dict[str, Any]] = {
    "cpu": {"optimizer": "cpu", "params": "cpu"},
    "nvme": {"optimizer": "nvme", "params": "nvme"},
    "optimizer_alone_on_nvme": {"optimizer": "nvme"},
    "params_alone_on_nvme": {"params": "nvme"},
    "params_on_cpu_and_optimizer_on_nvme": {"optimizer": "nvme", "params": "cpu"},
    "half_on_nvme": {"optimizer": "nvme", "params": "nvme", "ratio": 0.5},
}
CASES = [
    pytest.param(stage, dtype, place, id=f"stage_{stage}-{str(dtype)[6:]}-{place}")
    for stage, dtype, place in itertools.product(range(4), (torch.float32, torch.bfloat16), PLACES)
]


def placed(folder: Path, place: str) -> Placement:
    return Placement.of(CPU, folder=folder, **PLACES[place])


@pytest.mark.parametrize(("stage", "dtype", "place"), CASES)
def test_every_placement_trains_to_the_bits_of_none_and_survives_a_change_of_group(
    stage: int, dtype: torch.dtype, place: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"precision": Precision(params=dtype), "clip_norm": 0.01, "stage": stage}
    plain = engine_at(net(), Seat(), **options)
    moved = engine_at(net(), Seat(), placement=placed(tmp_path, place), **options)
    for engine in (plain, moved):
        train(engine, range(3))
    assert equal(state(moved), state(plain))
    held = moved.rejoin(Seat())
    for (kind, piece), values in held.values.items():
        moved.load(kind, piece, values)
    moved.commit_load()
    del held
    for engine in (plain, moved):
        train(engine, range(3, 5))
    assert equal(state(moved), state(plain))
    assert moved.scalars() == plain.scalars()


def test_what_outlives_a_group_stays_on_the_disk_until_it_is_read(tmp_path: Path) -> None:
    engine = engine_at(net(), Seat(), stage=3, placement=placed(tmp_path, "nvme"))
    train(engine, range(2))
    before = state(engine)
    held = engine.rejoin(Seat())
    train(engine, range(5, 7))
    assert equal(dict(held.values), before)
    assert equal(dict(held.values), before)


def sizes(stage: int, dtype: torch.dtype, placement: Placement) -> dict[str, dict[str, int]]:
    engine = engine_at(net(), Seat(), stage=stage, precision=Precision(params=dtype), placement=placement)
    train(engine, range(1))
    return engine.footprint().by_kind


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_offload_moves_bytes_from_tier_to_tier_and_adds_none(stage: int, dtype: torch.dtype, tmp_path: Path) -> None:
    near = sizes(stage, dtype, Placement.of(CPU))
    far = sizes(stage, dtype, placed(tmp_path, "nvme"))
    assert {kind: sum(tiers.values()) for kind, tiers in far.items()} == {k: t["device"] for k, t in near.items()}
    assert set(far["exp_avg"]) == set(far.get("master", {"nvme": 0})) == {"nvme"}
    assert set(far["grad"]) == {"cpu" if stage >= 2 else "device"}
    assert set(far["param"]) == {"nvme" if stage == 3 else "device"}


@given(
    numels=st.lists(st.integers(0, 10_000), min_size=1, max_size=30),
    ratio=st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0])),
)
def test_a_ratio_is_met_within_half_of_the_largest_vector(numels: list[int], ratio: float) -> None:
    placement = Placement.of(CPU, optimizer="cpu", ratio=ratio)
    for flat, numel in enumerate(numels):
        for kind in (StateKind.MASTER, StateKind.EXP_AVG):
            placement.allocate(StateKey(flat, kind), numel=numel, dtype=torch.float32)
    for tiers in placement.size_bytes().values():
        far = tiers.get("cpu", 0) // 4
        assert abs(far - ratio * sum(numels)) <= max(numels) / 2
        assert far == {0.0: 0, 1.0: sum(numels)}.get(ratio, far)


def test_a_step_holds_two_units_of_what_rests_on_a_disk(tmp_path: Path) -> None:
    placement = placed(tmp_path, "nvme")
    engine = engine_at(net(), Seat(), stage=3, placement=placement, units=UnitRule(layers=["Linear"]))
    train(engine, range(2))
    blocks = 2 * 3 * 4096  # parameters and two moments of 56 elements, each in a block of the disk
    assert engine.footprint().staging_bytes == blocks


def test_tiers_and_ratios_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="no tier 'gpu'"):
        Placement.of(CPU, optimizer="gpu")
    with pytest.raises(ValueError, match=r"ratio is 1\.5"):
        Placement.of(CPU, optimizer="cpu", ratio=1.5)
    with pytest.raises(ValueError, match="without a folder"):
        Placement.of(CPU, optimizer="nvme")
