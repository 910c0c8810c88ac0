"""Claim: wherever state rests, training ends like one plain process, with the bits of no offload at equal ranks."""

from __future__ import annotations

import os
import resource
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from service.domain.memory import recipe, state_bytes
from service.domain.offload import by_tier, resting
from service.domain.spec import Offload, PrecisionSpec
from tests.claims.ranks import on_ranks, world_group
from tests.claims.scenarios import plain_run
from tests.claims.test_known_faults import SCENARIOS, _at, _masters, run_scenario
from tests.claims.training import gpt, plain_curve, train_step, zero_engine
from workers.checkpoint.catalogue import inspect
from workers.checkpoint.parts import parts_of
from workers.checkpoint.reader import read_into
from workers.checkpoint.store import LocalStore
from workers.checkpoint.writer import FileReport, publish, write_rank
from workers.engine.placement import Placement
from workers.engine.precision import Precision
from workers.engine.states import StateKind
from workers.engine.units import UnitRule
from workers.engine.zero.engine import ZeroEngine

CPU = torch.device("cpu")
STEPS = 2
PLACES: dict[str, dict[str, Any]] = {
    "none": {},
    "cpu": {"optimizer": "cpu", "params": "cpu"},
    "nvme": {"optimizer": "nvme", "params": "nvme"},
    "half": {"optimizer": "nvme", "params": "nvme", "ratio": 0.5},
}
CASES = [(1, torch.float32), (3, torch.float32), (3, torch.bfloat16)]  # micro-batches of a rank, parameters
Masters = list[tuple[str, int, Tensor]]


def placed(place: str, folder: str) -> Placement:
    return Placement.of(CPU, folder=Path(folder), **PLACES[place])


# ---- the matrix ------------------------------------------------------------------------------------------------------


def _matrix(
    rank: int, world: int, folder: str
) -> dict[tuple[int, int, torch.dtype, str], tuple[list[tuple[float, float]], Masters]]:
    """(stage, micro-batches of a rank, dtype, place) -> the curve and this rank's masters at its end."""
    runs = {}
    for stage in range(4):
        for k, dtype in CASES:
            for place in PLACES:
                precision, placement = Precision(params=dtype), placed(place, folder)
                engine = zero_engine(gpt(), world_group(), stage=stage, precision=precision, placement=placement)
                steps = range(1, STEPS + 1)
                curve = [train_step(engine, step, rank=rank, world=world, count=k * world) for step in steps]
                runs[stage, k, dtype, place] = curve, _masters(engine, rank)
    return runs


@pytest.mark.parametrize("world", [1, 2, 3])
def test_offload_drops_no_micro_batch_after_the_first_and_has_the_bits_of_no_offload(
    world: int, tmp_path: Path
) -> None:
    references = {k: torch.tensor(plain_curve(gpt(), STEPS, count=k * world)) for k in (1, 3)}
    for runs in on_ranks(world, _matrix, str(tmp_path)):
        for (stage, k, dtype, place), (curve, masters) in runs.items():
            where = f"stage {stage}, k {k}, {dtype}, {place}"
            plain, wanted = runs[stage, k, dtype, "none"]
            assert curve == plain, where
            assert all(torch.equal(a[2], b[2]) for a, b in zip(masters, wanted, strict=True)), where
            if dtype is torch.float32:
                torch.testing.assert_close(torch.tensor(curve), references[k], rtol=1e-5, atol=0)


# ---- faults of others ------------------------------------------------------------------------------------------------

FAULTS = (
    "every_backward_counts_whatever_their_number_in_a_step",
    "a_gradient_in_some_micro_batches_only_counts_once_and_leaves_nothing_stale",
    "unused_parameters_and_a_branch_used_on_one_rank_only",
    "a_parameter_frozen_on_alternate_steps_keeps_its_own_step_and_bias_correction",
    "a_tied_embedding_of_seven_rows",
    "a_norm_of_gradients_near_epsilon",
    "frozen_weights_under_recomputation",
    "scalar_empty_non_contiguous_and_frozen_parameters",
)


def _faults(rank: int, world: int, folder: str) -> dict[tuple[str, int], tuple[Masters, list[float]]]:
    """Some vectors on the device and some on a disk."""
    ends = {}
    for name in FAULTS:
        scenario = SCENARIOS[name]
        for stage in range(4):
            model, placement = scenario.build(), placed("half", folder)
            options = {"clip_norm": scenario.clip_norm, "units": scenario.units, "placement": placement}
            engine = zero_engine(model, world_group(), stage=stage, **options)
            ends[name, stage] = run_scenario(engine, scenario, model, rank, world)
    return ends


def test_the_faults_of_other_engines_stay_out_whatever_the_tier(tmp_path: Path) -> None:
    expected = {name: plain_run(SCENARIOS[name]) for name in FAULTS}
    for of_rank in on_ranks(2, _faults, str(tmp_path)):
        for (name, stage), (masters, norms) in of_rank.items():
            where = f"{name}, stage {stage}"
            params, wanted = expected[name]
            torch.testing.assert_close(torch.tensor(norms), torch.tensor(wanted), rtol=1e-5, atol=1e-12)
            assert masters, where
            for tensor, start, values in masters:
                plain = params[tensor].reshape(-1)[start : start + values.numel()]
                torch.testing.assert_close(values, plain, rtol=1e-5, atol=1e-6, msg=partial(_at, f"{where}, {tensor}"))


def _changed(rank: int, world: int) -> list[tuple[float, float]]:
    """(norm, what it has to be) of each stage: a gradient that a user wrote after the backward, and an unused block."""
    found = []
    for stage in range(4):
        scenario = SCENARIOS["unused_parameters_and_a_branch_used_on_one_rank_only"]
        model, plain = scenario.build(), scenario.build()
        placement = Placement.of(CPU, optimizer="cpu", params="cpu")
        engine = zero_engine(model, world_group(), stage=stage, placement=placement)
        for step in range(2):
            engine.micro_step((10 * step + rank, "skip1"), weight=1 / world, last=True)
            extra = torch.full(plain.first.weight.shape, 0.3)
            if rank == 0:
                model.first.weight.grad = extra
            norm = engine.step(lr_scale=0.0).grad_norm
            plain.zero_grad()
            for number in range(world):
                (plain((10 * step + number, "skip1")) / world).backward()
            plain.first.weight.grad += extra
            grads = [param.grad for param in plain.parameters() if param.grad is not None]
            found.append((norm, nn.utils.get_total_norm(grads).item()))
    return found


def test_the_clip_norm_under_offload_is_of_the_gradients_as_they_are_at_the_step() -> None:
    for found in on_ranks(2, _changed):
        norms, wanted = torch.tensor(found).unbind(1)
        torch.testing.assert_close(norms, wanted, rtol=1e-5, atol=0)


# ---- bytes -----------------------------------------------------------------------------------------------------------

OFFLOADS = {
    "cpu": Offload(optimizer="cpu"),
    "nvme": Offload(optimizer="nvme"),
    "optimizer": Offload(optimizer="cpu", params="none"),
}
KINDS = {"params": (StateKind.PARAM,), "grads": (StateKind.GRAD,)}


def _bytes(rank: int, world: int, folder: str) -> dict[tuple[int, str, str], dict[str, dict[str, int]]]:
    held = {}
    for stage in range(4):
        for words in ("fp32", "bf16"):
            for name, offload in OFFLOADS.items():
                params = offload.optimizer if offload.params is None else offload.params
                placement = Placement.of(CPU, optimizer=offload.optimizer, params=params, folder=Path(folder))
                precision = Precision(params=torch.float32 if words == "fp32" else torch.bfloat16)
                engine = zero_engine(gpt(), world_group(), stage=stage, precision=precision, placement=placement)
                train_step(engine, 1, rank=rank, world=world, count=2)
                held[stage, words, name] = engine.footprint().by_kind
    return held


def test_every_tier_holds_what_its_formula_says(tmp_path: Path) -> None:
    """The planner's words against the engine's account, kind by kind and tier by tier."""
    numel = sum(param.numel() for param in gpt().parameters())
    for held in on_ranks(2, _bytes, str(tmp_path)):
        for (stage, words, name), found in held.items():
            rule = recipe(PrecisionSpec.model_validate(words), stage=stage)
            tiers = resting(OFFLOADS[name], stage=stage)
            states = state_bytes(numel=numel, workers=2, stage=stage, recipe=rule)
            for kind, planned in by_tier(states, tiers=tiers, ratio=1.0).items():
                mine = KINDS.get(kind, (StateKind.MASTER, StateKind.EXP_AVG, StateKind.EXP_AVG_SQ))
                measured = dict.fromkeys(planned, 0)
                for each in mine:
                    for tier, size in found.get(each, {}).items():
                        measured[tier] = measured.get(tier, 0) + size
                assert measured == pytest.approx(planned, rel=0.02), f"stage {stage}, {words}, {name}, {kind}"


class Wide(nn.Module):
    """16 million parameters in 16 equal layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1024, 1024, bias=False) for _ in range(16))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x.square().mean()


def _confined(rank: int, world: int, folder: str, place: str) -> str:
    """Room for parameters, gradients and two layers of the optimizer's state, and not for all of that."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    vector = 16 * 1024 * 1024 * 4
    limit = int(status["VmData"].split()[0]) * 1024 + 2 * vector + vector + vector // 4
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        engine = zero_engine(
            Wide(), world_group(), stage=1, units=UnitRule(layers=["Linear"]), placement=placed(place, folder)
        )
        for _ in range(2):
            engine.micro_step(torch.ones(1, 1024), weight=1.0, last=True)
            assert not engine.step(lr_scale=1.0).skipped
    except (RuntimeError, MemoryError) as error:
        return str(error)
    return "trained"


def test_states_that_exceed_the_memory_of_a_process_train_from_a_disk(tmp_path: Path) -> None:
    assert on_ranks(1, _confined, str(tmp_path), "nvme") == ["trained"]
    (end,) = on_ranks(1, _confined, str(tmp_path), "none")
    assert "can't allocate memory" in end


# ---- comings and goings ----------------------------------------------------------------------------------------------


def _killed(rank: int, world: int, folder: str) -> None:
    engine = zero_engine(gpt(), world_group(), stage=3, placement=placed("nvme", folder))
    train_step(engine, 1, rank=rank, world=world, count=1)
    Path(folder).with_suffix(".held").write_text(str(engine.footprint().by_kind["exp_avg"]))
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "states"
    on_ranks(1, _killed, str(folder), doomed=[0])
    assert folder.with_suffix(".held").read_text().startswith("{'nvme': ")
    assert list(folder.iterdir()) == []


def _save(store: LocalStore, engine: ZeroEngine, rank: int, world: int, *, step: int) -> None:
    parts = parts_of(engine, rank=rank)
    mine = write_rank(store, job="j", step=step, attempt=1, rank=rank, world_size=world, parts=parts)
    everyone: list[FileReport | None] = [None] * world
    dist.all_gather_object(everyone, mine)
    if rank == 0:
        reports = [report for report in everyone if report is not None]
        scalars = engine.scalars()
        publish(store, job="j", step=step, attempt=1, samples=0, spec_digest="", reports=reports, scalars=scalars)
    dist.barrier()


def _round_trips(rank: int, world: int, folder: str) -> list[str]:
    """Trained and saved under each placement, read under every other at another stage: then the next step is one."""
    store, ends = LocalStore(Path(folder) / "store"), {}
    for step, place in enumerate(PLACES):
        engine = zero_engine(gpt(), world_group(), stage=step, placement=placed(place, folder))
        train_step(engine, 1, rank=rank, world=world, count=2)
        _save(store, engine, rank, world, step=step)
        ends[step] = train_step(engine, 2, rank=rank, world=world, count=2)
    wrong = []
    for stage, place in enumerate(reversed(PLACES)):
        for step in ends:
            engine = zero_engine(gpt(seed=2), world_group(), stage=stage, placement=placed(place, folder))
            manifest = inspect(store, "j", step)
            read_into(engine, rank=rank, manifest=manifest, store=store)
            engine.load_scalars(manifest.scalars)
            engine.commit_load()
            end = train_step(engine, 2, rank=rank, world=world, count=2)
            wrong += [] if end == ends[step] else [f"{step} -> {stage}, {place}: {end}, {ends[step]}"]
    return wrong


def test_a_checkpoint_crosses_placements_and_stages_bit_for_bit(tmp_path: Path) -> None:
    assert on_ranks(2, _round_trips, str(tmp_path)) == [[], []]
