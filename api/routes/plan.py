"""`/v1/plan`: what a spec would need."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from api import schemas
from api.auth import requires
from api.bodies import document_or_yaml
from api.dependencies import AppServices, NoQuery
from api.openapi import refuses, takes
from service.domain.key import Scope

router = APIRouter(tags=["plan"])


@router.post(
    "/v1/plan",
    responses=refuses(400, 413, 415, 422),
    dependencies=[Depends(requires(Scope.READ)), NoQuery],
    **takes("JobSpecDocument", yaml=True),
)
async def make_plan(
    services: AppServices, document: Annotated[dict[str, Any], Depends(document_or_yaml)]
) -> schemas.Plan:
    """Bytes per rank and elements moved for every choice, what fits, what is recommended and why."""
    return schemas.Plan.model_validate(await services.plans.plan(document))
