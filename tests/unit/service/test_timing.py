"""How long a step takes on the workers there are, by what is known of them and what a job like this one measured."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from service.domain.cluster import ClusterFacts, Node
from service.domain.hardware import KNOWN, known_as
from service.domain.job import Job, JobState, Progress
from service.domain.parsing import parse_spec
from service.domain.planning import plan_spec
from service.domain.profile import profile_of
from service.domain.spec import JobSpec
from service.domain.timing import timed

AT = datetime(2026, 1, 1, tzinfo=UTC)
CPUS = ClusterFacts(nodes=(Node(id="n", address="a", alive=True, slots=4),), slot_kind="cpu", max_slots=4, address="a")


def spec_of(**fields: Any) -> JobSpec:
    return parse_spec({"model": "gpt-small", "workers": {"min": 1, "max": 4}, **fields})


def ran(tokens_per_s: float | None, *, workers: int = 2, **fields: Any) -> Job:
    spec = spec_of(**fields)
    progress = Progress(tokens_per_s=tokens_per_s, workers=workers)
    return Job(
        id="j",
        spec=spec,
        state=JobState.SUCCEEDED,
        reason="",
        bounds=spec.workers,
        created_at=AT,
        since=AT,
        progress=progress,
    )


def seconds(facts: ClusterFacts | None, *jobs: Job, **fields: Any) -> dict[tuple[int, str, int], float | None]:
    spec = spec_of(**fields)
    plan = timed(plan_spec(spec, memory=None), spec, profile_of, facts, jobs)
    return {(each.stage, each.offload, each.workers): each.step_s for each in plan.choices}


def gpus(*names: str) -> ClusterFacts:
    nodes = tuple(Node(id=name, address="a", alive=True, slots=8, accelerator=name) for name in names)
    return ClusterFacts(nodes=nodes, slot_kind="gpu", max_slots=8, address="a")


def test_on_cpus_nothing_is_said_before_something_was_measured() -> None:
    assert set(seconds(CPUS).values()) == {None}
    assert set(seconds(CPUS, ran(None), ran(500.0, precision="fp32")).values()) == {None}
    assert None not in seconds(CPUS, ran(500.0, stage=1)).values()


def test_what_was_measured_is_said_of_the_same_again_and_scaled_for_others() -> None:
    job = ran(500.0, stage=1)
    found = seconds(CPUS, job, ran(1.0, stage=1))
    taken_s = job.spec.training.batch_size * job.spec.training.seq_len / 500.0
    assert found[1, "none", 2] == pytest.approx(taken_s)
    alone = found[1, "none", 1]
    assert alone is not None
    assert taken_s < alone < 2.5 * taken_s


def test_a_known_accelerator_is_estimated_before_anything_ran_and_corrected_after() -> None:
    told, asked = seconds(gpus("H100", "H100")), seconds(None, resources={"gpu": 1, "accelerator": "H100"})
    assert told == asked
    assert None not in told.values()
    job = ran(1000.0, stage=1)
    again = seconds(gpus("H100"), job)[1, "none", 2]
    assert again == pytest.approx(job.spec.training.batch_size * job.spec.training.seq_len / 1000.0)
    assert set(seconds(gpus("H100", "L4")).values()) == set(seconds(gpus("of tomorrow")).values()) == {None}


def test_an_accelerator_has_the_rates_of_its_name() -> None:
    assert {known_as(each.name) for each in KNOWN} == set(KNOWN)
    found = known_as("NVIDIA A100-SXM4-80GB")
    assert found is not None
    assert (found.name, known_as("M4"), known_as(None)) == ("A100-80GB", None, None)
