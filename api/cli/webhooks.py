"""The commands about webhooks."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli.connection import AsJson, client_of
from api.cli.output import emit_json, print_table, say, time_text

app = typer.Typer(
    help="Addresses that are told when a job changes its state.", no_args_is_help=True, rich_markup_mode=None
)


@app.command()
def create(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="A public http or https address.")],
    as_json: AsJson = False,
) -> None:
    """Tell this address of each change. The secret that messages are signed with is shown once."""
    with client_of(context) as client:
        made = client.create_webhook(url)
    if as_json:
        return emit_json(made)
    say(f"webhook {made['id']} to {made['url']}; what its messages are signed with, shown this once:")
    return say(str(made["secret"]), style="bold")


@app.command("list")
def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List the webhooks and how delivering to them goes."""
    with client_of(context) as client:
        answer = client.webhooks()
    if as_json:
        return emit_json(answer)
    rows = [
        (w["id"], w["url"], w["delivered"], w["failed"], time_text(w["last_at"]), w["last_error"] or "-")
        for w in answer["items"]
    ]
    return print_table(("ID", "URL", "DELIVERED", "GIVEN UP", "LAST TRY", "ITS ERROR"), rows)


@app.command()
def delete(
    context: typer.Context,
    webhook_id: Annotated[str, typer.Argument(metavar="ID", help="As `elastane webhooks list` prints it.")],
    as_json: AsJson = False,
) -> None:
    """Tell this address nothing more."""
    with client_of(context) as client:
        client.delete_webhook(webhook_id)
    emit_json({"id": webhook_id, "deleted": True}) if as_json else say(f"webhook {webhook_id} is deleted")
