"""`/v1/jobs/{id}/metrics`: series, downsampled with their extremes kept."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from api import schemas
from api.auth import requires
from api.bodies import LARGEST
from api.dependencies import AppServices, JobId, QueryParameters
from api.openapi import refuses
from service.domain.key import Scope

router = APIRouter(tags=["metrics"])


class MetricsQuery(QueryParameters):
    names: Annotated[
        str | None,
        Field(max_length=2000, pattern=r"^[a-z0-9_,]+$", description="separated by commas; all where absent"),
    ] = None
    points: int = Field(1000, ge=1, le=100_000, description="at most so many per series")
    from_step: int = Field(0, ge=0, le=LARGEST)
    to_step: int | None = Field(None, ge=0, le=LARGEST, description="the last one; absent: to the end")


@router.get("/v1/jobs/{job_id}/metrics", responses=refuses(404, 422), dependencies=[Depends(requires(Scope.READ))])
async def read_metrics(
    services: AppServices, job_id: JobId, query: Annotated[MetricsQuery, Query()]
) -> schemas.Metrics:
    """One series per name and, where measured per rank, per rank. A spike of one step is visible at every zoom."""
    names = [name for name in (query.names or "").split(",") if name]
    found = await services.metrics.series(
        job_id, names=names, points=query.points, from_step=query.from_step, to_step=query.to_step
    )
    return schemas.Metrics(series=[schemas.Series.of(one) for one in found])
