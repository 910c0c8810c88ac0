"""`elastane doctor`: what is in order and what is not, with what to do; the status is 1 where something is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

import typer
from rich.text import Text

from api.cli.connection import AsJson, client_of
from api.cli.output import emit_json, out, plain
from api.client import ApiError, ElastaneClient, Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`ok` None: worth knowing, neither right nor wrong."""

    what: str
    ok: bool | None
    detail: str


def doctor(context: typer.Context, as_json: AsJson = False) -> None:
    """Check the service, your key, the cluster and the versions; exit status 1 where something is wrong."""
    with client_of(context) as client:
        found = list(_findings(client))
    if as_json:
        emit_json({"healthy": all(one.ok is not False for one in found), "findings": [asdict(one) for one in found]})
    else:
        for one in found:
            mark = {True: Text("ok     ", "green"), False: Text("wrong  ", "bold red"), None: Text("note   ", "dim")}
            out().print(mark[one.ok].append(plain(f"{one.what}: {one.detail}"), style="default"))
    if any(one.ok is False for one in found):
        raise typer.Exit(1)


def _findings(client: ElastaneClient) -> Iterator[Finding]:
    yield from _packages()
    try:
        ready, served = client.readiness(), client.version()
    except ApiError as error:
        yield Finding(what="service", ok=False, detail=str(error))
        return
    yield Finding(what="service", ok=True, detail=f"{client.url} answers")
    ours = _installed("elastane") or served
    other = f"the service is {served}, this command is {ours}; use the same version"
    yield Finding(what="version", ok=served == ours, detail=served if served == ours else other)
    for name, said in ready["checks"].items():
        yield Finding(what=name, ok=said == "ok", detail=said)
    yield from _access(client)


def _packages() -> Iterator[Finding]:
    """Of the machine of this command; where workers run elsewhere none of them is needed here."""
    for name in ("torch", "ray"):
        found = _installed(name)
        yield Finding(what=name, ok=None, detail=found or "not installed here; only workers need it")


def _access(client: ElastaneClient) -> Iterator[Finding]:
    session = client.session()
    if session["name"] is not None:
        yield Finding(what="key", ok=True, detail=f"{session['name']}, {', '.join(session['scopes'])}")
    elif session["key_asked"]:
        fix = "set ELASTANE_API_KEY to one that `elastane keys create` printed"
        yield Finding(what="key", ok=False, detail=f"the service asks for a key and none that it knows is sent; {fix}")
        return
    else:
        yield Finding(what="key", ok=None, detail="none is asked for")
    try:
        cluster = client.cluster()
    except Refused as error:
        yield Finding(what="cluster", ok=False, detail=str(error))
        return
    slots = f"{cluster['slots_free']} of {cluster['slots']} {cluster['slot_kind']} slots are free"
    detail = f"{slots}, {len(cluster['pending'])} jobs wait"
    yield Finding(what="cluster", ok=max(cluster["slots"], cluster["max_slots"]) > 0, detail=detail)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
