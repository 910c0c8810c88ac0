"""`/v1/webhooks`: addresses that are told when a job changes its state, for those who hold the scope admin."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path

from api import webhook_schemas as schemas
from api.auth import requires
from api.bodies import body_of
from api.dependencies import AppServices, NoQuery
from api.openapi import refuses, takes
from service.domain.key import Scope

router = APIRouter(tags=["webhooks"])

ADMIN = Depends(requires(Scope.ADMIN))


@router.post(
    "/v1/webhooks",
    status_code=201,
    responses=refuses(400, 413, 415, 422),
    dependencies=[ADMIN, NoQuery],
    **takes("WebhookRequest"),
)
async def create_webhook(
    services: AppServices, body: Annotated[schemas.WebhookRequest, Depends(body_of(schemas.WebhookRequest))]
) -> schemas.NewWebhook:
    """From now on each change of a job's state is posted there as JSON, signed as standardwebhooks.com says (HMAC
    over id, timestamp and body), and repeated until it answers 2xx; `webhook-id` tells a repetition."""
    return schemas.NewWebhook.model_validate(await services.webhooks.create(body.url))


@router.get("/v1/webhooks", responses=refuses(422), dependencies=[ADMIN, NoQuery])
async def list_webhooks(services: AppServices) -> schemas.Webhooks:
    """All of them, without their secrets, and how delivering goes."""
    return schemas.Webhooks(items=[schemas.Webhook.model_validate(each) for each in await services.webhooks.list()])


@router.delete("/v1/webhooks/{webhook_id}", status_code=204, responses=refuses(404, 422), dependencies=[ADMIN, NoQuery])
async def delete_webhook(
    services: AppServices, webhook_id: Annotated[str, Path(pattern=r"^[0-9A-Za-z-]{1,64}$")]
) -> None:
    """It is told nothing more, also of what has happened already."""
    await services.webhooks.remove(webhook_id)
