"""`/v1/cluster`: nodes and slots, who uses them, who waits."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from api import schemas
from api.auth import requires
from api.dependencies import AppServices, NoQuery
from api.openapi import refuses
from service.domain.key import Scope

router = APIRouter(tags=["cluster"])


@router.get("/v1/cluster", responses=refuses(422), dependencies=[Depends(requires(Scope.READ)), NoQuery])
async def view_cluster(services: AppServices) -> schemas.Cluster:
    """What there is to run on, and what the autoscaler may add."""
    return schemas.Cluster.model_validate(await services.cluster.view())
