"""`/v1/jobs/{id}/checkpoints`: those there are, and one now."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from api import schemas
from api.auth import requires
from api.dependencies import AppServices, JobId, NoBody, NoQuery
from api.openapi import refuses
from service.domain.key import Scope

router = APIRouter(tags=["checkpoints"])


@router.get(
    "/v1/jobs/{job_id}/checkpoints",
    responses=refuses(404, 422),
    dependencies=[Depends(requires(Scope.READ)), NoQuery],
)
async def list_checkpoints(services: AppServices, job_id: JobId) -> schemas.Checkpoints:
    """Whole checkpoints, newest first."""
    found = await services.checkpoints.list(job_id)
    return schemas.Checkpoints(items=[schemas.Checkpoint.model_validate(record) for record in found])


@router.post(
    "/v1/jobs/{job_id}/checkpoints",
    status_code=202,
    responses=refuses(404, 409, 413, 422),
    dependencies=[Depends(requires(Scope.SUBMIT)), NoQuery, NoBody],
)
async def request_checkpoint(services: AppServices, job_id: JobId) -> schemas.CheckpointRequest:
    """One as soon as the step allows; the event checkpoint_saved tells when. Asking twice gives the same request."""
    return schemas.CheckpointRequest.model_validate(await services.checkpoints.request(job_id))
