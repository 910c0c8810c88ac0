"""`/v1/session`: a browser signs in with a key once and never holds it where a script could read it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from api import schemas
from api.auth import COOKIE, asks_for_keys, presented, verified
from api.bodies import body_of
from api.dependencies import AppServices, NoQuery
from api.openapi import refuses, takes
from service.domain.errors import Denied
from service.domain.key import ApiKey

router = APIRouter(tags=["session"], dependencies=[NoQuery])


@router.post("/v1/session", responses=refuses(400, 401, 413, 415, 422, 429), **takes("SignIn"))
async def sign_in(
    request: Request,
    response: Response,
    body: Annotated[schemas.SignIn, Depends(body_of(schemas.SignIn))],
) -> schemas.Session:
    """Sets a cookie that no script can read and no other site can send. Revoking the key ends it."""
    key = await verified(request, body.key)
    # No path: the browser takes the folder of this address, /v1 behind whatever prefix a proxy has.
    response.set_cookie(COOKIE, body.key, path=None, httponly=True, samesite="strict", secure=_encrypted(request))
    return _session(key, asked=True)


@router.get("/v1/session", responses=refuses(422))
async def read_session(services: AppServices, request: Request) -> schemas.Session:
    """Who the caller is, and whether anybody is asked. A key that is not good is nobody's, and no refusal."""
    asked = await asks_for_keys(request)
    try:
        return _session(await services.keys.verify(presented(request)), asked=asked)
    except Denied:
        return _session(None, asked=asked)


@router.delete("/v1/session", status_code=204, responses=refuses(422))
async def sign_out(response: Response) -> None:
    """The cookie is gone; without one nothing changes."""
    response.set_cookie(COOKIE, "", max_age=0, path=None, httponly=True, samesite="strict")


def _encrypted(request: Request) -> bool:
    public = str(request.app.state.settings.public_url or "")
    return request.url.scheme == "https" or public.startswith("https://")


def _session(key: ApiKey | None, *, asked: bool) -> schemas.Session:
    if key is None:
        return schemas.Session(key_asked=asked, name=None, scopes=[])
    return schemas.Session(key_asked=asked, name=key.name, scopes=list(key.scopes), quota_slots=key.quota_slots)
