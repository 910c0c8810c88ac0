"""The commands of whoever runs the service: serve, keys, db, cluster."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.connection import AsJson, client_of
from api.cli.output import emit_json, print_table, say, size_text, time_text

Local = Annotated[
    bool, typer.Option("--local", help="On the service's machine: work on its database, no key is needed.")
]


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.  [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 takes a free one.  [default: 8000]")] = None,
    home: Annotated[Path | None, typer.Option(help="Where the data live.  [default: ~/.elastane]")] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Worker slots of the embedded Ray.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Listen beyond loopback without a key.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the service: control plane, dashboard and, without a cluster, a local Ray."""
    options = {"host": host, "port": port, "home": home, "slots": slots, "insecure": insecure or None}
    given = {name: value for name, value in options.items() if value is not None}
    raise typer.Exit(_server().serve(given, as_json=as_json))


def upgrade_database(
    home: Annotated[Path | None, typer.Option(help="Where the data live.  [default: ~/.elastane]")] = None,
    as_json: AsJson = False,
) -> None:
    """Bring the database (ELASTANE_DATABASE_URL, or SQLite in the home) to this version's tables."""
    raise typer.Exit(_server().upgrade({"home": home} if home is not None else {}, as_json=as_json))


def create_key(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Whose key it is.")],
    scope: Annotated[list[str] | None, typer.Option(help="read, submit, admin; each includes the former.")] = None,
    quota: Annotated[int | None, typer.Option(min=0, help="Slots that its jobs may hold together.")] = None,
    local: Local = False,
    as_json: AsJson = False,
) -> None:
    """Create an API key. Its secret is shown once."""
    with _keys(context, local=local) as client:
        key = client.create_key(name=name, scopes=scope or ["submit"], quota_slots=quota)
    if as_json:
        return emit_json(key)
    say(f"key {key['id']} ({key['name']}, {', '.join(key['scopes'])}); its secret, shown this once:")
    return say(str(key["key"]), style="bold")


def list_keys(context: typer.Context, local: Local = False, as_json: AsJson = False) -> None:
    """List the API keys."""
    with _keys(context, local=local) as client:
        answer = client.keys()
    if as_json:
        return emit_json(answer)
    rows = [
        (
            k["id"],
            k["name"],
            k["hint"],
            ", ".join(k["scopes"]),
            k["quota_slots"],
            *(time_text(k.get(f"{what}_at")) for what in ("created", "last_used", "revoked")),
        )
        for k in answer["items"]
    ]
    return print_table(("ID", "NAME", "BEGINS", "SCOPES", "QUOTA", "CREATED (UTC)", "LAST USED", "REVOKED"), rows)


def limit_key(
    context: typer.Context,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `elastane keys list` prints it.")],
    slots: Annotated[str, typer.Argument(metavar="N|none", help="Slots that its jobs may hold together.")],
    local: Local = False,
    as_json: AsJson = False,
) -> None:
    """Set or lift the quota of an API key."""
    if slots != "none" and not slots.isdigit():
        raise typer.BadParameter(f"{slots!r}: say a number of slots, or none")
    with _keys(context, local=local) as client:
        key = client.limit_key(key_id, None if slots == "none" else int(slots))
    emit_json(key) if as_json else say(f"the jobs of key {key_id} may hold {slots if slots != 'none' else 'any'} slots")


def revoke_key(
    context: typer.Context,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `elastane keys list` prints it.")],
    local: Local = False,
    as_json: AsJson = False,
) -> None:
    """Revoke an API key at once and for good."""
    with _keys(context, local=local) as client:
        client.revoke_key(key_id)
    emit_json({"id": key_id, "revoked": True}) if as_json else say(f"key {key_id} is revoked")


def cluster(context: typer.Context, as_json: AsJson = False) -> None:
    """Show nodes, slots, who uses them and who waits."""
    with client_of(context) as client:
        view = client.cluster()
    if as_json:
        return emit_json(view)
    say(f"{view['slots_free']} of {view['slots']} {view['slot_kind']} slots free; at most {view['max_slots']}")
    rows = [
        (
            *(n["id"], n["address"], "alive" if n["alive"] else "gone", n["slots"], size_text(n.get("memory_bytes"))),
            *(n.get("accelerator") or "none", size_text(n.get("accelerator_memory_bytes"))),
        )
        for n in view["nodes"]
    ]
    print_table(("NODE", "ADDRESS", "STATE", "SLOTS", "MEMORY", "ACCELERATOR", "EACH"), rows)
    for use in view["used"]:
        say(f"job {use['job_id']} ({use['name'] or 'no name'}): {use['workers']} workers on {use['slots']} slots")
    for quota in view["quotas"]:
        say(f"key {quota['name']}: its jobs hold {quota['slots']} of {quota['quota_slots']} slots")
    for waiting in view["pending"]:
        say(f"job {waiting['job_id']} waits: {waiting['reason']}", style="yellow")
    return None


def _keys(context: typer.Context, *, local: bool) -> Any:
    return _server().local_keys() if local else client_of(context)


def _server() -> Any:
    """The server's modules, loaded only by the commands that need them: every other command starts quickly."""
    return importlib.import_module("api.cli.server")
