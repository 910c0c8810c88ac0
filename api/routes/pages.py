"""Pages for people: the dashboard at `/` where it is built, the API's documentation at `/docs`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from api.docs_page import STYLE, docs_page

router = APIRouter(include_in_schema=False)

DIST = Path(__file__).parent.parent / "dashboard" / "dist"

NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Elastane</title>
<link rel="stylesheet" href="docs.css"><h1>Elastane is running</h1>
<p>The dashboard is not built here. In a checkout: <code>make dashboard</code>, then load this page again.</p>
<p>The API is complete without it: <a href="docs">docs</a>, <a href="v1/jobs">jobs</a>, <a href="readyz">readyz</a>;
on the command line: <code>elastane jobs</code>.</p></html>"""


@router.get("/")
async def index() -> Response:
    page = DIST / "index.html"
    # The page names its assets by their digest: it is asked for anew, they are kept.
    headers = {"cache-control": "no-cache"}
    return FileResponse(page, headers=headers) if page.is_file() else HTMLResponse(NOT_BUILT, headers=headers)


@router.get("/favicon.svg")
@router.get("/favicon.ico")
async def favicon() -> Response:
    icon = DIST / "favicon.svg"
    if not icon.is_file():
        raise HTTPException(404)
    return FileResponse(icon, media_type="image/svg+xml")


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    return HTMLResponse(_rendered(request.app))


@router.get("/docs.css")
async def docs_style() -> Response:
    return Response(STYLE, media_type="text/css")


@lru_cache(maxsize=4)
def _rendered(app: FastAPI) -> str:
    return docs_page(app.openapi())


class Assets(StaticFiles):
    """Where the folder is not there, nothing is in it: a 404, not a fault."""

    async def check_config(self) -> None:
        """A dashboard that is built later is found without a restart."""


def assets() -> StaticFiles:
    """The dashboard's scripts and styles."""
    return Assets(directory=DIST / "assets", check_dir=False)
