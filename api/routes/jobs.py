"""`/v1/jobs`: submit, list, show, act, delete, the timeline, the members."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic import Field

from api import schemas
from api.auth import caller_of, requires
from api.bodies import LARGEST, body_of, document_or_yaml
from api.dependencies import AppServices, JobId, NoBody, NoQuery, QueryParameters
from api.openapi import refuses, takes
from api.plan_schemas import DryRun, Plan
from service.domain.job import JobState
from service.domain.key import Scope

router = APIRouter(tags=["jobs"])

READ = Depends(requires(Scope.READ))
SUBMIT = Depends(requires(Scope.SUBMIT))


class SubmitQuery(QueryParameters):
    dry_run: bool = Field(False, description="validate and plan only; nothing is submitted")


class ListQuery(QueryParameters):
    state: JobState | None = None
    name: Annotated[str | None, Field(pattern=r"^[a-z0-9-]{1,63}$")] = None
    limit: int = Field(50, ge=1, le=200)
    cursor: Annotated[str | None, Field(pattern=r"^[0-9a-f-]{36}$", description="`next_cursor` of a page")] = None


class EventsQuery(QueryParameters):
    after: int = Field(0, ge=0, le=LARGEST, description="`next_after` of the former answer")
    limit: int = Field(500, ge=1, le=1000)


@router.post(
    "/v1/jobs",
    status_code=201,
    response_model=schemas.SubmittedJob,
    responses={
        200: {
            "model": schemas.SubmittedJob | DryRun,
            "description": "The job that this key made, or a dry run",
        },
        201: {"headers": {"Location": {"schema": {"type": "string"}}}},
        **refuses(400, 409, 413, 415, 422),
    },
    dependencies=[SUBMIT],
    **takes("JobSpecDocument", yaml=True),
)
async def submit_job(
    request: Request,
    services: AppServices,
    response: Response,
    query: Annotated[SubmitQuery, Query()],
    document: Annotated[dict[str, Any], Depends(document_or_yaml)],
    idempotency_key: Annotated[str | None, Header(description="the same key and body make one job")] = None,
) -> Any:
    """Submit a job. With an Idempotency-Key it may be repeated: 200 with the same job, 409 with another body. Code of
    the user's (`{python: ...}`, and what `environment` brings) runs in workers alone; a secret is the name under which
    the operator keeps it, and its value is never shown."""
    done = await services.jobs.submit(
        document, idempotency_key=idempotency_key, dry_run=query.dry_run, caller=caller_of(request)
    )
    response.status_code = 201 if done.created else 200
    if done.job is None:
        plan = None if done.plan is None else Plan.model_validate(done.plan)
        dry_run = DryRun(plan=plan, report=dict(done.report))
        return Response(dry_run.model_dump_json(), media_type="application/json")
    response.headers["location"] = f"/v1/jobs/{done.job.id}"
    return schemas.SubmittedJob.from_submission(done.job, done.report)


@router.get("/v1/jobs", responses=refuses(422), dependencies=[READ])
async def list_jobs(services: AppServices, query: Annotated[ListQuery, Query()]) -> schemas.JobPage:
    """Jobs, newest first, a page at a time."""
    page = await services.jobs.list(state=query.state, name=query.name, limit=query.limit, cursor=query.cursor)
    return schemas.JobPage(items=[schemas.Job.of(job) for job in page.items], next_cursor=page.next_cursor)


@router.get("/v1/jobs/{job_id}", responses=refuses(404, 422), dependencies=[READ, NoQuery])
async def show_job(services: AppServices, job_id: JobId) -> schemas.Job:
    """One job, with what each rank last measured of its memory."""
    return schemas.Job.of(await services.jobs.get(job_id))


@router.delete("/v1/jobs/{job_id}", status_code=204, responses=refuses(404, 409, 422), dependencies=[SUBMIT, NoQuery])
async def delete_job(services: AppServices, job_id: JobId) -> None:
    """An ended job, its history and its checkpoints."""
    await services.jobs.delete(job_id)


@router.post(
    "/v1/jobs/{job_id}/scale",
    status_code=202,
    responses=refuses(400, 404, 409, 413, 415, 422),
    dependencies=[SUBMIT, NoQuery],
    **takes("ScaleRequest"),
)
async def scale_job(
    request: Request,
    services: AppServices,
    job_id: JobId,
    body: Annotated[schemas.ScaleRequest, Depends(body_of(schemas.ScaleRequest))],
) -> schemas.Job:
    """Change the bounds of a job while it trains, and how it holds its state: stage and offload."""
    changed = await services.jobs.scale(
        job_id, body.workers, stage=body.stage, offload=body.offload, caller=caller_of(request)
    )
    return schemas.Job.of(changed)


@router.post(
    "/v1/jobs/{job_id}/priority",
    status_code=202,
    responses=refuses(400, 404, 409, 413, 415, 422),
    dependencies=[SUBMIT, NoQuery],
    **takes("PriorityRequest"),
)
async def prioritise_job(
    request: Request,
    services: AppServices,
    job_id: JobId,
    body: Annotated[schemas.PriorityRequest, Depends(body_of(schemas.PriorityRequest))],
) -> schemas.Job:
    """Change who comes first when there are not slots enough for all."""
    return schemas.Job.of(await services.jobs.prioritise(job_id, body.priority, caller=caller_of(request)))


@router.get("/v1/jobs/{job_id}/explain", responses=refuses(404, 422, 503), dependencies=[READ, NoQuery])
async def explain_job(services: AppServices, job_id: JobId) -> schemas.Explanation:
    """Why the job waits, or has the workers it has: sentences with numbers, and who is ahead of it."""
    return schemas.Explanation.model_validate(await services.cluster.explain(job_id))


ACTION: dict[str, Any] = {
    "status_code": 202,
    "responses": refuses(404, 409, 413, 422),
    "dependencies": [SUBMIT, NoQuery, NoBody],
}


@router.post("/v1/jobs/{job_id}/pause", **ACTION)
async def pause_job(request: Request, services: AppServices, job_id: JobId) -> schemas.Job:
    """Save a checkpoint and give the workers back."""
    return schemas.Job.of(await services.jobs.pause(job_id, caller=caller_of(request)))


@router.post("/v1/jobs/{job_id}/resume", **ACTION)
async def resume_job(request: Request, services: AppServices, job_id: JobId) -> schemas.Job:
    """Go on from the newest checkpoint."""
    return schemas.Job.of(await services.jobs.resume(job_id, caller=caller_of(request)))


@router.post("/v1/jobs/{job_id}/cancel", **ACTION)
async def cancel_job(request: Request, services: AppServices, job_id: JobId) -> schemas.Job:
    """End a job for good."""
    return schemas.Job.of(await services.jobs.cancel(job_id, caller=caller_of(request)))


@router.get("/v1/jobs/{job_id}/events", responses=refuses(404, 422), dependencies=[READ])
async def list_events(services: AppServices, job_id: JobId, query: Annotated[EventsQuery, Query()]) -> schemas.Events:
    """The timeline, oldest first; `next_after` reads on."""
    found = await services.jobs.events(job_id, after=query.after, limit=query.limit)
    items = [schemas.Event.model_validate(event) for event in found]
    return schemas.Events(items=items, next_after=items[-1].id if items else query.after)


@router.get("/v1/jobs/{job_id}/workers", responses=refuses(404, 422), dependencies=[READ, NoQuery])
async def list_workers(services: AppServices, job_id: JobId) -> schemas.WorkerList:
    """The members of the present generation, by rank."""
    found = await services.jobs.workers(job_id)
    return schemas.WorkerList(items=[schemas.Worker.model_validate(worker) for worker in found])
