"""A model of the user's is described where workers run, once, and planned and admitted like one of ours."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.errors import Forbidden, SpecRefused
from tests.fakes.control_plane import ControlPlane

MODEL = {"python": "mine:build"}
TOLD: dict[str, Any] = {
    "model": "Mine",
    "numel": 1_000_000,
    "frozen": 200_000,
    "matrices": 0,
    "micro_batch_size": 4,
    "units": [{"name": "root", "numel": 400_000}, {"name": "a", "numel": 500_000}, {"name": "b", "numel": 100_000}],
    "activations": {
        "plain": {"kept_bytes": 8_000, "peak_bytes": 9_000, "operations": 6_000_000},
        "checkpointed": {"kept_bytes": 2_000, "peak_bytes": 5_000, "operations": 8_000_000},
    },
    "untraced": None,
}


async def test_its_states_and_activations_are_in_the_plan(plane: ControlPlane) -> None:
    plane.launcher.description = TOLD
    plan = await plane.plans.plan({"model": MODEL, "workers": 2, "stage": 2}, may_run_code=True)
    (choice,) = [each for each in plan.choices if (each.stage, each.offload) == (1, "none")]
    # bf16 parameters, frozen ones with nothing else; master and moments of the trained, in halves.
    assert {kind: sum(tiers.values()) for kind, tiers in choice.bytes_by_kind.items()} == {
        "params": 2 * 1_000_000,
        "grads": 2 * 800_000,
        "optimizer": 12 * 400_000,
        "gathered_peak": 0,
        "buckets_peak": 2 * (500_000 + 250_000) * 4,
        "activations_peak": 8_000,
        "backward_peak": 1_000,
    }
    assert plan.unit_numels == {"root": 400_000, "block": 500_000}


async def test_it_is_asked_once_for_what_is_the_same(plane: ControlPlane) -> None:
    plane.launcher.description = TOLD
    for fields in ({}, {"stage": 3}, {"workers": 4}, {"training": {"steps": 5}}):
        await plane.plans.plan({"model": MODEL, **fields}, may_run_code=True)
    assert len(plane.launcher.described) == 1
    await plane.plans.plan({"model": MODEL, "training": {"seq_len": 8}}, may_run_code=True)
    plane.clock.pass_s(3600)
    await plane.plans.plan({"model": MODEL}, may_run_code=True)
    assert len(plane.launcher.described) == 3


async def test_ours_ask_nobody_and_an_ordinary_submission_waits_for_nothing(plane: ControlPlane) -> None:
    await plane.plans.plan({"model": "gpt-tiny"}, may_run_code=False)
    await plane.submit(model=MODEL)
    assert plane.launcher.described == []


async def test_who_may_not_submit_runs_no_code(plane: ControlPlane) -> None:
    plane.launcher.description = TOLD
    with pytest.raises(Forbidden):
        await plane.plans.plan({"model": MODEL}, may_run_code=False)
    assert plane.launcher.described == []


async def test_auto_is_chosen_by_the_description(plane: ControlPlane) -> None:
    plane.launcher.description = TOLD
    submitted = await plane.jobs.submit({"model": MODEL, "stage": "auto", "workers": 2})
    assert submitted.job is not None
    assert submitted.job.spec.stage == 1
    assert "stage 1" in submitted.report["stage"]


async def test_what_cannot_be_built_is_refused_before_it_is_queued(plane: ControlPlane) -> None:
    said = {"field": "model.python", "value": "no:where", "problem": "no module", "fix": "x"}
    plane.launcher.description = {"error": "spec_refused", **said}
    with pytest.raises(SpecRefused) as caught:
        await plane.jobs.submit({"model": MODEL, "stage": "auto"})
    assert [(problem.field, problem.value) for problem in caught.value.problems] == [("model.python", "no:where")]
