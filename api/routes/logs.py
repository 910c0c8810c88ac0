"""`/v1/jobs/{id}/logs`: lines of workers and controller, a bounded page at a time or as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from api import schemas
from api.auth import requires
from api.bodies import LARGEST
from api.dependencies import AppServices, JobId, QueryParameters
from api.openapi import refuses
from service.domain.key import Scope
from service.wiring import Services

router = APIRouter(tags=["logs"])

LINES_TYPE = "application/x-ndjson"
POLL_S = 0.5


class LogsQuery(QueryParameters):
    rank: int | None = Field(None, ge=0, le=1_000_000)
    after: int = Field(0, ge=0, le=LARGEST, description="`next_after` of the former answer")
    limit: int = Field(500, ge=1, le=2000)
    follow: bool = Field(False, description="one JSON document per line, until the job ends")


@router.get(
    "/v1/jobs/{job_id}/logs",
    response_model=schemas.LogLines,
    responses={200: {"content": {LINES_TYPE: {"schema": {"type": "string"}}}}, **refuses(404, 422)},
    dependencies=[Depends(requires(Scope.READ))],
)
async def read_logs(
    request: Request, services: AppServices, job_id: JobId, query: Annotated[LogsQuery, Query()]
) -> Any:
    """Lines in order of arrival; `next_after` reads on, `follow=true` streams."""
    if query.follow:
        await services.jobs.get(job_id)
        lines = _follow(services, job_id, query, stopping=request.app.state.stopping)
        return StreamingResponse(lines, media_type=LINES_TYPE, headers={"cache-control": "no-cache"})
    return await _page(services, job_id, query, after=query.after)


async def _page(services: Services, job_id: str, query: LogsQuery, *, after: int) -> schemas.LogLines:
    found = await services.logs.lines(job_id, rank=query.rank, after=after, limit=query.limit)
    items = [schemas.LogRecord.model_validate(record) for record in found]
    return schemas.LogLines(items=items, next_after=items[-1].id if items else after)


async def _follow(
    services: Services, job_id: str, query: LogsQuery, *, stopping: asyncio.Event
) -> AsyncIterator[bytes]:
    after = query.after
    while not stopping.is_set():
        # The state first: once it is final, the page read next holds the last lines.
        ended = (await services.jobs.get(job_id)).terminal
        page = await _page(services, job_id, query, after=after)
        after = page.next_after
        for line in page.items:
            yield line.model_dump_json().encode() + b"\n"
        if not page.items:
            if ended:
                return
            await asyncio.sleep(POLL_S)
