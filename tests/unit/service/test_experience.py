"""What a job measured corrects the next plan of the same model on such workers, and of no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from service.domain.experience import MOST, device_bytes, learnt
from service.domain.job import Job, JobState, Progress
from service.domain.parsing import parse_spec
from service.domain.planning import rank_bytes
from service.domain.profile import Profile, profile_of

AT = datetime(2026, 1, 1, tzinfo=UTC)
MIB = 2**20
MEASURED = {"params": 100 * MIB, "predicted_params": 100 * MIB}
MORE = {**MEASURED, "activations_peak": 60 * MIB, "predicted_activations_peak": 50 * MIB}


def job(memory: Mapping[str, int], **fields: Any) -> Job:
    spec = parse_spec({"model": "gpt-small", **fields})
    return Job(
        id="j",
        spec=spec,
        state=JobState.RUNNING,
        reason="",
        bounds=spec.workers,
        created_at=AT,
        since=AT,
        progress=Progress(memory={"0": dict(memory)}),
    )


def ours(**fields: Any) -> tuple[Profile, Any]:
    spec = parse_spec({"model": "gpt-small", "stage": 1, **fields})
    profile = profile_of(spec)
    assert profile is not None
    return profile, spec


def test_a_measured_factor_is_in_the_next_plan_at_any_stage_and_micro_batch() -> None:
    profile, spec = ours(stage=3, training={"micro_batch_size": 2})
    before = rank_bytes(spec, profile, stage=3, workers=2)
    after = rank_bytes(spec, learnt(profile, spec, [job(MORE, stage=1)]), stage=3, workers=2)
    changed = {kind: after[kind]["device"] / before[kind]["device"] for kind in before if after[kind] != before[kind]}
    assert changed.keys() == {"activations_peak"}
    assert round(changed["activations_peak"], 4) == 1.2


def test_the_newest_that_is_alike_and_has_measured_decides() -> None:
    profile, spec = ours()
    others = [job(MORE, precision="fp32"), job(MORE, model="gpt-tiny"), job({}), job(MORE, resources={"gpu": 1})]
    assert learnt(profile, spec, others) == profile
    found = learnt(profile, spec, [*others, job(MORE), job(MEASURED)])
    assert found.factors["activations_peak"] == 1.2


def test_a_wild_measurement_is_bounded() -> None:
    profile, spec = ours()
    wild = {"params": 900 * MIB, "predicted_params": 100 * MIB}
    assert learnt(profile, spec, [job(wild)]).factors == {"params": MOST}


def test_activations_that_could_not_be_traced_are_as_measured() -> None:
    profile, spec = ours(training={"batch_size": 8, "micro_batch_size": 8})
    untraced = replace(profile, passing={}, kept=None)
    found = learnt(untraced, spec, [job({**MEASURED, "activations_peak": 10 * MIB})])
    assert found.passing == {"activations_peak": 20 * MIB}


def test_the_memory_that_workers_found_is_told_by_the_newest_job_of_such_workers() -> None:
    _, spec = ours(resources={"gpu": 1})
    other = job({"capacity": 24 * 2**30}, resources={"gpu": 1, "accelerator": "L4"})
    mine = job({"capacity": 80 * 2**30}, resources={"gpu": 1})
    assert device_bytes(spec, [other, job(MORE, resources={"gpu": 1}), mine]) == 80 * 2**30
    assert device_bytes(spec, [other]) is None
