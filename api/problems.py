"""Every refusal as an RFC 9457 problem: one shape, stable types, and for each wrong field its value and the fix."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from service.domain.errors import (
    AttemptTokenWrong,
    Conflict,
    Denied,
    ElastaneError,
    NotFound,
    RayNotStarted,
    Refused,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)

MEDIA_TYPE = "application/problem+json"

log = logging.getLogger("elastane.api")


class FieldProblem(BaseModel):
    """One wrong field: where it is (`training.steps`), what was sent, what is wrong with it, what to do."""

    field: str
    value: Any = None
    problem: str
    fix: str


class Problem(BaseModel):
    """An RFC 9457 document; members beyond the standard ones (`state` of a job in conflict) may follow."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:elastane:problem:invalid-spec"])
    title: str
    status: int
    detail: str
    instance: str
    errors: list[FieldProblem] | None = None


class ProblemError(Exception):
    """Raised at the border to answer with a problem. `code` is stable; clients may switch on it."""

    def __init__(
        self,
        status: int,
        code: str,
        title: str,
        detail: str,
        *,
        errors: Iterable[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.title = title
        self.detail = detail
        self.errors = list(errors)
        self.headers = dict(headers or {})
        self.members = dict(members or {})


def problem_response(error: ProblemError, *, path: str) -> Response:
    """The answer. Escaped to ASCII: a lone surrogate in an echoed value must not break the answer about it."""
    document: dict[str, Any] = {
        "type": f"urn:elastane:problem:{error.code}",
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "instance": path,
        **error.members,
    }
    if error.errors:
        document["errors"] = [part.model_dump() | {"value": echo(part.value)} for part in error.errors]
    body = json.dumps(document, ensure_ascii=True, allow_nan=False, default=str)
    return Response(body, error.status, headers={"cache-control": "no-store", **error.headers}, media_type=MEDIA_TYPE)


def echo(value: object, *, depth: int = 3) -> object:
    """What was sent, cut to a size worth reading and without what JSON cannot say."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:
        return f"{value:.6e}" if abs(value) < 10**300 else "an integer of more than 300 digits"
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping | list | tuple) and not depth:
        return "..."
    if isinstance(value, Mapping):
        return {str(key)[:60]: echo(inner, depth=depth - 1) for key, inner in list(value.items())[:20]}
    if isinstance(value, list | tuple):
        return [echo(inner, depth=depth - 1) for inner in value[:20]]
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


def field_problems(errors: Sequence[Mapping[str, Any]], *, root: str = "body") -> list[FieldProblem]:
    """pydantic's errors in our words; `("body", "workers", "min")` is named `workers.min`."""
    return [
        FieldProblem(
            field=_field(error["loc"], root),
            value=error.get("input"),
            problem=str(error["msg"]).removeprefix("Value error, "),
            fix=_fix(str(error["type"]), error.get("ctx") or {}),
        )
        for error in errors
    ]


def _field(loc: Sequence[str | int], root: str) -> str:
    parts = [str(part) for part in loc]
    named = parts[1:] if len(parts) > 1 and parts[0] in ("body", "query", "path", "header") else parts
    return ".".join(named) or root


def _fix(kind: str, bounds: Mapping[str, Any]) -> str:
    """What to do about a kind of error; the bound where there is one."""
    limits = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    for name, words in limits.items():
        if name in bounds:
            return f"give {words} {bounds[name]}"
    plain = {
        "missing": "add this field",
        "extra_forbidden": "remove it; /openapi.json lists what is known here",
        "string_pattern_mismatch": f"make it match {bounds.get('pattern')}",
        "string_too_long": f"use at most {bounds.get('max_length')} characters",
        "string_too_short": f"use at least {bounds.get('min_length')} characters",
        "too_long": f"give at most {bounds.get('max_length')}",
        "literal_error": f"use one of {bounds.get('expected')}",
        "enum": f"use one of {bounds.get('expected')}",
        "int_parsing": "give a whole number",
        "int_type": "give a whole number",
        "int_from_float": "give a whole number",
        "bool_parsing": "use true or false",
        "string_type": "give a text",
        "timezone_aware": "say the offset, as in 2026-01-31T12:00:00Z",
    }
    return plain.get(kind, "change it as the problem says")


# ---- the handlers ------------------------------------------------------------------------------------------------

CODES = {
    400: ("bad-request", "The request cannot be read"),
    401: ("unauthenticated", "A key is needed"),
    403: ("forbidden", "Not allowed"),
    404: ("not-found", "There is no such thing"),
    405: ("method-not-allowed", "This path does not take this method"),
    406: ("not-acceptable", "No such representation"),
    409: ("conflict", "Not possible in the present state"),
    413: ("too-large", "The body is too large"),
    415: ("unsupported-media-type", "This content type is not read here"),
    422: ("invalid-request", "The request is not valid"),
    429: ("too-many-requests", "Too many requests"),
    503: ("unavailable", "The service cannot answer now"),
}


# The first class that an error is decides its status.
STATUSES: tuple[tuple[type[ElastaneError], int], ...] = (
    (Refused, 422),
    (NotFound, 404),
    (Conflict, 409),
    (Unauthenticated, 401),
    (AttemptTokenWrong, 401),
    (Denied, 403),
    (TooManyRequests, 429),
    (Unavailable, 503),
    (RayNotStarted, 503),
)
HEADERS = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}


def problem_of(error: ElastaneError) -> ProblemError:
    """The service's error as a problem; its facts (`state`, `job_id`) become members."""
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
    errors = [
        FieldProblem(field=part.field, value=part.value, problem=part.problem, fix=part.fix)
        for part in (error.problems if isinstance(error, Refused) else ())
    ]
    members = {name: echo(value) for name, value in error.fields.items() if name != "problems"}
    code, headers = error.code.replace("_", "-"), HEADERS.get(status)
    if isinstance(error, TooManyRequests):
        headers = {"retry-after": str(error.fields["retry_after_s"])}
    return ProblemError(status, code, error.title, error.detail, errors=errors, headers=headers, members=members)


async def _on_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, ElastaneError)
    problem = problem_of(error)
    if problem.status >= 500:
        log.error("%s %s: %s", request.method, request.url.path, error.detail)
    return problem_response(problem, path=request.url.path)


async def _on_leave(request: Request, error: Exception) -> Response:
    """For the counts and logs alone: nobody is there to read it."""
    problem = ProblemError(400, "bad-request", "The body cannot be read", "its sender left before its end")
    return problem_response(problem, path=request.url.path)


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return problem_response(error, path=request.url.path)


async def _on_http(request: Request, error: Exception) -> Response:
    """Starlette's own 404, 405, 413: the same shape, and the headers it meant (Allow)."""
    assert isinstance(error, HTTPException)
    status = error.status_code
    code, title = CODES.get(status, (HTTPStatus(status).name.lower().replace("_", "-"), HTTPStatus(status).phrase))
    detail = {
        404: f"nothing is at {echo(request.url.path)}; /docs lists what is there",
        405: f"{request.method} is not taken at {echo(request.url.path)}; see the Allow header",
    }.get(status, str(error.detail))
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    headers |= _allow(request) if status == 405 else {}
    return problem_response(ProblemError(status, code, title, detail, headers=headers), path=request.url.path)


def _allow(request: Request) -> dict[str, str]:
    """Every method of the path: the router names only those of the first route that it found."""
    for template, methods in request.app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", template), request.url.path):
            return {"allow": ", ".join(method.upper() for method in methods)}
    return {}


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = field_problems(error.errors())
    detail = "; ".join(f"{part.field}: {part.problem}" for part in errors[:5])
    problem = ProblemError(422, "invalid-request", "The request is not valid", detail, errors=errors)
    return problem_response(problem, path=request.url.path)


async def _on_bug(request: Request, error: Exception) -> Response:
    """A 5xx is a bug of ours: the log has all of it, the answer nothing of the inside."""
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    detail = f"{type(error).__name__}; the service's log has the details. Please report it"
    return problem_response(ProblemError(500, "bug", "The service failed", detail), path=request.url.path)


def install(app: FastAPI) -> None:
    """Registers the handlers, on Starlette's HTTPException so that routing's own errors are ours too."""
    app.add_exception_handler(ProblemError, _on_problem)
    app.add_exception_handler(ElastaneError, _on_refusal)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(ClientDisconnect, _on_leave)
    app.add_exception_handler(Exception, _on_bug)
