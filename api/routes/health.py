"""Health for supervisors and numbers for Prometheus. No key: they hold no secret, and probes carry none."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from api import schemas
from api.dependencies import AppServices, NoQuery
from api.openapi import refuses

router = APIRouter(tags=["health"], dependencies=[NoQuery])


@router.get("/healthz", responses=refuses(422))
async def healthz() -> schemas.Health:
    """The process answers."""
    return schemas.Health()


@router.get(
    "/readyz",
    response_model=schemas.Readiness,
    responses={
        503: {"model": schemas.Readiness, "description": "Not ready; the checks say what is missing"},
        **refuses(422),
    },
)
async def readyz(services: AppServices) -> Any:
    """The database answers, the reconciler looks, Ray can be used."""
    found = await services.readiness()
    body = schemas.Readiness(ready=found.ready, checks=dict(found.checks))
    return JSONResponse(body.model_dump(), 200 if found.ready else 503)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **refuses(422)},
)
async def prometheus(request: Request, services: AppServices) -> Response:
    """The exposition format of Prometheus."""
    text = request.app.state.telemetry.exposition(await services.census.read())
    return Response(text, media_type=CONTENT_TYPE_LATEST)
