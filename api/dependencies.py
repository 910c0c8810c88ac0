"""What routes are handed: the service's use cases, and parameters that every path checks alike."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Request
from pydantic import BaseModel, ConfigDict

from api.problems import FieldProblem, ProblemError
from service.wiring import Services


def services_of(request: Request) -> Services:
    """The use cases that `main.create_app` wired."""
    services: Services = request.app.state.services
    return services


class QueryParameters(BaseModel):
    """A query string; a parameter that is not known here is refused, not ignored."""

    model_config = ConfigDict(extra="forbid")


def no_query(request: Request) -> None:
    """For paths that take no parameter."""
    if request.query_params:
        errors = [
            FieldProblem(field=name, value=value, problem="this path has no such parameter", fix="remove it")
            for name, value in list(request.query_params.items())[:20]
        ]
        detail = f"unknown parameter {errors[0].field[:100]}; this path takes none"
        raise ProblemError(422, "invalid-request", "The request is not valid", detail, errors=errors)


async def no_body(request: Request) -> None:
    """For actions that say everything in their path: an empty body or an empty object, whatever its type."""
    body = (await request.body()).strip()
    if body not in (b"", b"{}"):
        raise ProblemError(422, "invalid-request", "The request is not valid", "this path takes no body; send none")


AppServices = Annotated[Services, Depends(services_of)]
NoQuery = Depends(no_query)
NoBody = Depends(no_body)

JobId = Annotated[str, Path(pattern=r"^[0-9A-Za-z-]{1,64}$", description="as the list of jobs gives it")]
