"""The `elastane` command. Exit status: 0 success, 1 the job or the request failed, 2 wrong usage."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from api.cli import checkpoints, doctor, jobs, operate, plan, top, webhooks
from api.cli.connection import Connection
from api.cli.output import print_error
from api.client import DEFAULT_URL, ApiError

app = typer.Typer(
    name="elastane",
    help="Elastic training jobs: submit, watch, resize.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
keys = typer.Typer(help="API keys.", no_args_is_help=True, rich_markup_mode=None)
database = typer.Typer(help="The service's database.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def root(
    context: typer.Context,
    url: Annotated[str, typer.Option(envvar="ELASTANE_URL", help="The service.")] = DEFAULT_URL,
    api_key: Annotated[str | None, typer.Option(envvar="ELASTANE_API_KEY", help="ek_...", show_envvar=True)] = None,
) -> None:
    context.obj = Connection(url=url, api_key=api_key)


app.command()(operate.serve)
app.command()(jobs.submit)
app.command("jobs")(jobs.jobs)
app.command()(jobs.show)
app.command()(jobs.events)
app.command()(jobs.logs)
app.command()(jobs.scale)
app.command()(jobs.priority)
app.command()(jobs.explain)
app.command()(jobs.pause)
app.command()(jobs.resume)
app.command()(jobs.cancel)
app.command()(checkpoints.export)
app.command()(plan.plan)
app.command()(plan.import_ds)
app.command()(plan.import_fsdp)
app.command()(operate.cluster)
app.command()(top.top)
app.command()(doctor.doctor)
keys.command("create")(operate.create_key)
keys.command("list")(operate.list_keys)
keys.command("quota")(operate.limit_key)
keys.command("revoke")(operate.revoke_key)
database.command("upgrade")(operate.upgrade_database)
app.add_typer(checkpoints.app, name="checkpoints")
app.add_typer(keys, name="keys")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(database, name="db")


def main() -> None:
    """The border at which every expected failure becomes sentences and a status, never a traceback."""
    try:
        app()
    except ApiError as error:
        print_error(error, as_json="--json" in sys.argv)
        sys.exit(1)


if __name__ == "__main__":
    main()
