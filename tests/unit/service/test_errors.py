"""The error tree: codes are stable and unique, and every error arrives as what it was."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from service.domain import errors
from service.domain.errors import ElastaneError, Problem

EXAMPLES: tuple[ElastaneError, ...] = (
    errors.SpecRefused(
        [Problem(field="a", value=1, problem="p", fix="f"), Problem(field="b", value=2, problem="q", fix="g")]
    ),
    errors.RequestRefused([Problem(field="a", value=1, problem="p", fix="f")]),
    errors.JobNotFound("j" * 500),
    errors.CheckpointNotFound(job_id="j", step=7),
    errors.CheckpointNeeded(job_id="j", step=7, state="running"),
    errors.CheckpointUnfit("x.safetensors is missing", job_id="j"),
    errors.ToolUnavailable("silent"),
    errors.AttemptNotFound("a"),
    errors.KeyNotFound("k"),
    errors.WebhookNotFound("w"),
    errors.IllegalTransition(job_id="j", state="paused", trigger="scale"),
    errors.JobStillLive(job_id="j", state="running"),
    errors.AttemptOver("a"),
    errors.StaleWrite(job_id="j", version=3),
    errors.IdempotencyKeyReused(key="k", job_id="j"),
    errors.Unauthenticated(),
    errors.Forbidden(needs="admin", has=["read"]),
    errors.AttemptTokenWrong("a"),
    errors.TooManyRequests(per_minute=60, retry_after_s=0.2),
    errors.DatabaseUnavailable("locked"),
    errors.LeaseLost(name="reconciler", token=4),
    errors.ClusterUnavailable("refused"),
    errors.ErasureFailed(uri="s3://bucket", cause="denied"),
    errors.HomeInUse(path="/h", holder="7"),
    errors.DatabaseOutdated(found="1", wanted="2"),
    errors.RayNotStarted(cause="c", log="/l"),
)


def leaves(kind: type[ElastaneError]) -> Iterator[type[ElastaneError]]:
    below = kind.__subclasses__()
    if not below:
        yield kind
    for each in below:
        yield from leaves(each)


def test_every_error_has_an_example_here() -> None:
    assert {type(example) for example in EXAMPLES} == set(leaves(ElastaneError))


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling(error: ElastaneError) -> None:
    copied: Any = pickle.loads(pickle.dumps(error))
    assert type(copied) is type(error)
    assert (str(copied), copied.detail, copied.fields) == (str(error), error.detail, error.fields)


def test_codes_are_unique_among_the_errors_that_are_raised() -> None:
    codes = [type(error).code for error in EXAMPLES]
    assert len(set(codes)) == len(codes)


def test_a_refusal_says_the_first_problem_and_how_many_more_there_are() -> None:
    assert str(EXAMPLES[0]) == "a: p; f (and 1 more)"
    assert [problem.field for problem in EXAMPLES[0].problems] == ["a", "b"]  # type: ignore[attr-defined]


def test_what_came_from_outside_is_cut_before_it_is_repeated() -> None:
    assert len(str(errors.JobNotFound("j" * 500))) < 200


@pytest.mark.parametrize(
    ("error", "way_out"),
    [
        (errors.IllegalTransition(job_id="j", state="failed", trigger="pause"), "submit a new job"),
        (
            errors.IllegalTransition(job_id="j", state="pausing", trigger="scale"),
            "try again when its state has changed",
        ),
        (errors.AttemptNotFound("a"), "stop its workers"),
        (errors.ClusterUnavailable("refused"), "check that it is up and that ELASTANE_RAY_ADDRESS names it"),
    ],
)
def test_a_message_says_what_to_do(error: ElastaneError, way_out: str) -> None:
    assert way_out in str(error)
