"""Refusals as RFC 9457 documents."""

from __future__ import annotations

import json

import pytest

from api.problems import MEDIA_TYPE, FieldProblem, ProblemError, echo, field_problems, problem_of, problem_response
from service.domain.errors import (
    AttemptTokenWrong,
    DatabaseUnavailable,
    ElastaneError,
    Forbidden,
    IllegalTransition,
    JobNotFound,
    Problem,
    RayNotStarted,
    SpecRefused,
    Unauthenticated,
)

SPEC_REFUSED = SpecRefused([Problem(field="stage", value=4, problem="no such stage", fix="use 0 to 3")])


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SPEC_REFUSED, 422),
        (JobNotFound("x"), 404),
        (IllegalTransition(job_id="x", state="failed", trigger="pause"), 409),
        (Unauthenticated(), 401),
        (AttemptTokenWrong("x"), 401),
        (Forbidden(needs="admin", has=["read"]), 403),
        (DatabaseUnavailable("locked"), 503),
        (RayNotStarted(cause="c", log="/l"), 503),
        (ElastaneError("nobody knows"), 500),
    ],
)
def test_each_branch_of_the_error_tree_has_its_status(error: ElastaneError, status: int) -> None:
    assert problem_of(error).status == status


def test_a_refused_spec_names_field_value_problem_and_fix() -> None:
    expected = {"field": "stage", "value": 4, "problem": "no such stage", "fix": "use 0 to 3"}
    assert document(problem_of(SPEC_REFUSED))["errors"] == [expected]


def test_a_conflict_tells_the_state() -> None:
    problem = problem_of(IllegalTransition(job_id="x", state="failed", trigger="pause"))
    assert document(problem)["state"] == "failed"


def test_who_is_not_known_is_told_how_to_come_in() -> None:
    assert problem_of(Unauthenticated()).headers == {"www-authenticate": "Bearer"}


def test_who_comes_too_early_is_told_when_to_come_again() -> None:
    for error in (DatabaseUnavailable("locked"), RayNotStarted(cause="c", log="/l")):
        assert problem_of(error).headers["retry-after"] == "1"


def test_the_answer_has_the_members_and_the_type_of_the_rfc() -> None:
    response = problem_response(problem_of(JobNotFound("x")), path="/v1/jobs/x")
    assert response.headers["content-type"] == MEDIA_TYPE
    assert {"type", "title", "status", "detail", "instance"} <= json.loads(bytes(response.body)).keys()


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 10**400, "\ud800", b"\xff", {"a": [object()]}, "x" * 10**6]
)
def test_whatever_was_sent_can_be_echoed(value: object) -> None:
    problem = ProblemError(422, "c", "t", "d", errors=[FieldProblem(field="f", value=value, problem="p", fix="f")])
    assert len(json.dumps(document(problem))) < 1000


def test_a_deep_value_is_cut() -> None:
    deep: object = 1
    for _ in range(5000):
        deep = [deep]
    assert len(str(echo(deep))) < 400


def test_a_field_is_named_without_where_it_came_from() -> None:
    errors = [
        {"loc": ("query", "limit"), "input": "0", "msg": "too small", "type": "greater_than_equal", "ctx": {"ge": 1}}
    ]
    assert field_problems(errors)[0].model_dump() == {
        "field": "limit",
        "value": "0",
        "problem": "too small",
        "fix": "give at least 1",
    }


def document(problem: ProblemError) -> dict[str, object]:
    found: dict[str, object] = json.loads(bytes(problem_response(problem, path="/x").body))
    return found
