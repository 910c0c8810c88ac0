"""`/internal`: what the controller of an attempt asks, with the token of that attempt."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path

from api.auth import attempt_token
from api.bodies import heartbeat_body
from api.dependencies import AppServices, NoQuery
from api.openapi import refuses, takes
from service.domain.wire import Brief, Heartbeat, Orders

router = APIRouter(tags=["internal"], dependencies=[NoQuery])

AttemptId = Annotated[str, Path(pattern=r"^[0-9A-Za-z-]{1,64}$")]
Token = Annotated[str, Depends(attempt_token)]


@router.get("/internal/v1/attempts/{attempt_id}", responses=refuses(404, 409, 422))
async def brief(services: AppServices, attempt_id: AttemptId, token: Token) -> Brief:
    """What a controller fetches when it starts; 409 where its attempt has ended."""
    return await services.attempts.brief(attempt_id, token)


@router.post(
    "/internal/v1/attempts/{attempt_id}/heartbeat",
    responses=refuses(400, 404, 409, 413, 415, 422),
    **takes("Heartbeat"),
)
async def heartbeat(
    services: AppServices,
    attempt_id: AttemptId,
    token: Token,
    beat: Annotated[Heartbeat, Depends(heartbeat_body)],
) -> Orders:
    """Facts up, orders down; 409 where another attempt has taken over."""
    return await services.attempts.heartbeat(attempt_id, token, beat)
