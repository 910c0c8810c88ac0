"""Starting from another job's checkpoint: which one, and every reason why not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from service.domain.checkpoint import CheckpointRecord
from service.domain.errors import SpecRefused
from service.domain.origin import Source, settle
from service.domain.parsing import parse_spec
from service.domain.spec import JobSpec

JOB = "0197-a"
AT = datetime(2026, 1, 1, tzinfo=UTC)


def spec(origin: object = f"{JOB}@100", **fields: Any) -> JobSpec:
    return parse_spec({"model": "gpt-tiny", "from": origin, **fields})


def source(*steps: int, model: object = "gpt-tiny") -> Source:
    found = tuple(
        CheckpointRecord(
            job_id=JOB,
            step=step,
            uri=f"/c/{JOB}/step-{step:08d}",
            size_bytes=1,
            files=1,
            duration_s=0.0,
            attempt=1,
            at=AT,
        )
        for step in sorted(steps, reverse=True)
    )
    return Source(spec=JobSpec.model_validate({"model": model}), checkpoints=found)


def refusal(wanted: JobSpec, there: Source | None) -> str:
    with pytest.raises(SpecRefused) as caught:
        settle(wanted, there)
    return caught.value.detail


def test_a_step_is_found_and_its_folder_is_what_the_workers_are_told() -> None:
    settled = settle(spec(), source(100, 200))
    assert settled.spec.start_from is not None
    assert (settled.spec.start_from.step, settled.spec.start_from.uri) == (100, f"/c/{JOB}")
    assert settled.report == {}


def test_without_a_step_the_newest_is_taken_and_said() -> None:
    settled = settle(spec(JOB), source(100, 200))
    assert settled.spec.start_from is not None
    assert settled.spec.start_from.step == 200
    assert "step 200" in settled.report["from"]


def test_a_spec_survives_its_way_through_the_database() -> None:
    settled = settle(spec({"job": JOB, "optimizer": False}), source(100)).spec
    assert '"from":' in settled.model_dump_json()
    assert JobSpec.model_validate_json(settled.model_dump_json()) == settled


@pytest.mark.parametrize(
    ("wanted", "there", "words"),
    [
        (spec(), None, "there is no such job"),
        (spec(), source(), "has no checkpoint; wait for its first"),
        (spec(), source(200, 300), "no checkpoint of step 100; there are 300, 200"),
        (spec(model={"layers": 4, "width": 96}), source(100), "model.layers is 5 there and 4 here; model.width is 128"),
        (spec({"uri": "checkpoints/x"}), None, "relative to nothing in particular"),
    ],
)
def test_what_cannot_be_started_from_is_refused_in_words(wanted: JobSpec, there: Source | None, words: str) -> None:
    assert words in refusal(wanted, there)


def test_blocks_that_only_one_side_has_may_be_missing_on_demand() -> None:
    deeper = {"layers": 7, "width": 128, "heads": 4, "vocab": 256, "context": 256}
    assert "model.layers" in refusal(spec(model=deeper), source(100))
    settle(spec({"job": JOB, "step": 100, "allow_missing": True}, model=deeper), source(100))


@pytest.mark.parametrize(
    ("origin", "field", "words"),
    [
        ("x@last", "from", "write JOB@STEP"),
        ({"step": 3}, "from", "neither job nor uri"),
        ({"job": JOB, "stp": 3}, "from.stp", "did you mean step?"),
        ("../x", "from.job", "write the id of a job"),
    ],
)
def test_a_bad_origin_is_explained(origin: object, field: str, words: str) -> None:
    with pytest.raises(SpecRefused) as caught:
        spec(origin)
    assert caught.value.problems[0].field == field
    assert words in f"{caught.value.problems[0].problem}; {caught.value.problems[0].fix}"


def test_an_unknown_field_beside_it_hears_of_from_by_its_name() -> None:
    with pytest.raises(SpecRefused, match="did you mean from"):
        parse_spec({"model": "gpt-tiny", "form": "x"})
