"""`/v1/jobs/{id}/checkpoints`: those there are, one now, and what is done with one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path

from api import checkpoint_schemas as schemas
from api.auth import requires
from api.bodies import body_of
from api.dependencies import AppServices, JobId, NoBody, NoQuery
from api.openapi import refuses, takes
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


ONE = "/v1/jobs/{job_id}/checkpoints/{step}"
Step = Annotated[int, Path(ge=0, lt=2**40)]
ACTION: dict[str, Any] = {
    "responses": refuses(404, 409, 413, 422),
    "dependencies": [Depends(requires(Scope.SUBMIT)), NoQuery, NoBody],
}


@router.post(f"{ONE}/verify", **ACTION)
async def verify_checkpoint(services: AppServices, job_id: JobId, step: Step) -> schemas.Verified:
    """Read every byte of one, and name each file that is not what was written. Answers when that is done."""
    return schemas.Verified(**await services.checkpoints.verify(job_id, step))


@router.post(f"{ONE}/pin", **ACTION)
async def pin_checkpoint(services: AppServices, job_id: JobId, step: Step) -> schemas.Checkpoint:
    """From now on retention leaves it alone."""
    return schemas.Checkpoint.model_validate(await services.checkpoints.pin(job_id, step, pinned=True))


@router.post(f"{ONE}/unpin", **ACTION)
async def unpin_checkpoint(services: AppServices, job_id: JobId, step: Step) -> schemas.Checkpoint:
    """Retention may remove it again."""
    return schemas.Checkpoint.model_validate(await services.checkpoints.pin(job_id, step, pinned=False))


@router.post(
    f"{ONE}/export",
    responses=refuses(400, 404, 409, 413, 415, 422),
    dependencies=[Depends(requires(Scope.SUBMIT)), NoQuery],
    **takes("ExportRequest"),
)
async def export_checkpoint(
    services: AppServices,
    job_id: JobId,
    step: Step,
    body: Annotated[schemas.ExportRequest, Depends(body_of(schemas.ExportRequest))],
) -> schemas.Exported:
    """Write one as a Hugging Face folder or as torch's distributed checkpoint. Answers when that is done."""
    done = await services.checkpoints.export(
        job_id, step, to=body.to, form=body.format, dtype=body.dtype, average=body.average
    )
    return schemas.Exported(**done)


@router.delete(
    ONE,
    status_code=204,
    responses=refuses(404, 409, 422),
    dependencies=[Depends(requires(Scope.SUBMIT)), NoQuery],
)
async def delete_checkpoint(services: AppServices, job_id: JobId, step: Step) -> None:
    """One checkpoint and its pin; not the one that a job which has not ended would go on from."""
    await services.checkpoints.delete(job_id, step)
