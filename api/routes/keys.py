"""`/v1/keys`: API keys, for those who hold the scope admin."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request

from api import schemas
from api.auth import requires
from api.bodies import body_of
from api.dependencies import AppServices, NoQuery
from api.openapi import refuses, takes
from service.domain.key import Scope

router = APIRouter(tags=["keys"])

KeyId = Annotated[str, Path(pattern=r"^[0-9A-Za-z-]{1,64}$")]
ADMIN = Depends(requires(Scope.ADMIN))


@router.post(
    "/v1/keys",
    status_code=201,
    responses=refuses(400, 413, 415, 422),
    dependencies=[ADMIN, NoQuery],
    **takes("KeyRequest"),
)
async def create_key(
    request: Request,
    services: AppServices,
    body: Annotated[schemas.KeyRequest, Depends(body_of(schemas.KeyRequest))],
) -> schemas.NewKey:
    """A new key. Its secret is in this answer and nowhere else. From the first key on, every call needs one."""
    made = await services.keys.create(body.name, body.scopes, quota_slots=body.quota_slots)
    request.app.state.key_presence.forget()
    return schemas.NewKey(**schemas.Key.model_validate(made.key).model_dump(), key=made.secret)


@router.get("/v1/keys", responses=refuses(422), dependencies=[ADMIN, NoQuery])
async def list_keys(services: AppServices) -> schemas.Keys:
    """All keys, revoked ones too, without their secrets."""
    return schemas.Keys(items=[schemas.Key.model_validate(key) for key in await services.keys.list()])


@router.post(
    "/v1/keys/{key_id}/quota",
    responses=refuses(400, 404, 413, 415, 422),
    dependencies=[ADMIN, NoQuery],
    **takes("QuotaRequest"),
)
async def limit_key(
    services: AppServices,
    key_id: KeyId,
    body: Annotated[schemas.QuotaRequest, Depends(body_of(schemas.QuotaRequest))],
) -> schemas.Key:
    """How many slots the jobs of a key may hold together. Jobs that hold more shrink, the last in rank are stopped."""
    return schemas.Key.model_validate(await services.keys.limit(key_id, body.slots))


@router.delete("/v1/keys/{key_id}", status_code=204, responses=refuses(404, 422), dependencies=[ADMIN, NoQuery])
async def revoke_key(
    request: Request,
    services: AppServices,
    key_id: KeyId,
) -> None:
    """From now on and for good. Doing it again changes nothing."""
    await services.keys.revoke(key_id)
    request.app.state.key_presence.forget()
