"""Server-sent events: what happens, from a cursor on, without gap and without duplicate."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import Field

from api.auth import requires
from api.bodies import LARGEST
from api.dependencies import AppServices, JobId, QueryParameters
from api.openapi import refuses
from api.problems import FieldProblem, ProblemError
from service.domain.errors import ElastaneError
from service.domain.key import Scope
from service.domain.notice import Notice
from service.wiring import Services

router = APIRouter(tags=["stream"])

READ = Depends(requires(Scope.READ))


class StreamQuery(QueryParameters):
    after: int | None = Field(None, ge=0, le=LARGEST, description="as Last-Event-ID, for clients that send no header")


async def cursor(
    services: AppServices,
    query: Annotated[StreamQuery, Query()],
    last_event_id: Annotated[str | None, Header(description="the last id that was seen")] = None,
) -> int:
    """Where to go on. Fixed before the answer begins: what a client reads once it stands is never older."""
    if last_event_id is not None and last_event_id != "":
        # The length first: Python refuses to read a number of thousands of digits.
        plain = len(last_event_id) <= len(str(LARGEST)) and last_event_id.isascii() and last_event_id.isdigit()
        if not plain or int(last_event_id) > LARGEST:
            wrong = FieldProblem(
                field="Last-Event-ID", value=last_event_id, problem="not an id of this stream", fix="leave it out"
            )
            raise ProblemError(422, "invalid-request", "The request is not valid", wrong.problem, errors=[wrong])
        return int(last_event_id)
    return services.stream.newest() if query.after is None else query.after


async def known_job(services: AppServices, job_id: JobId) -> str:
    """A stream of no job is a 404, not a silence."""
    return (await services.jobs.get(job_id)).id


@router.get("/v1/stream", response_class=EventSourceResponse, responses=refuses(422), dependencies=[READ])
async def stream_all(
    request: Request, services: AppServices, after: Annotated[int, Depends(cursor)]
) -> AsyncIterator[ServerSentEvent]:
    """All jobs: `event`, `sample` and `state`; `resync` tells a client that was away too long to load anew."""
    async for message in _messages(request, services, None, after):
        yield message


@router.get(
    "/v1/jobs/{job_id}/stream", response_class=EventSourceResponse, responses=refuses(404, 422), dependencies=[READ]
)
async def stream_job(
    request: Request,
    services: AppServices,
    job_id: Annotated[str, Depends(known_job)],
    after: Annotated[int, Depends(cursor)],
) -> AsyncIterator[ServerSentEvent]:
    """One job: the same events as the stream of all."""
    async for message in _messages(request, services, job_id, after):
        yield message


async def _messages(
    request: Request, services: Services, job_id: str | None, after: int
) -> AsyncIterator[ServerSentEvent]:
    telemetry = request.app.state.telemetry
    telemetry.stream_opened()
    try:
        async for notice in _until(request.app.state.stopping, services.stream.subscribe(job_id, after)):
            yield _message(notice)
    except ElastaneError:
        # The job was deleted, or the database is away: the client comes back with its cursor and is told.
        return
    finally:
        telemetry.stream_closed()


def _message(notice: Notice) -> ServerSentEvent:
    return ServerSentEvent(id=str(notice.id), event=notice.kind, data={"job_id": notice.job_id, **notice.data})


async def _until(stopping: asyncio.Event, notices: AsyncIterator[Notice]) -> AsyncIterator[Notice]:
    """The notices until the service stops; a stream must not hold up its end."""
    stop = asyncio.create_task(stopping.wait())
    upcoming: asyncio.Task[Notice] | None = None
    try:
        while True:
            upcoming = asyncio.ensure_future(anext(notices))
            await asyncio.wait({upcoming, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not upcoming.done():
                return
            try:
                yield upcoming.result()
            except StopAsyncIteration:
                return
    finally:
        for task in (stop, upcoming):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration, ElastaneError):
                    await task
