"""`elastane checkpoints ID` and what is done with one: now, verify, pin, unpin, delete; `elastane export ID`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from api.cli.connection import AsJson, JobId, client_of
from api.cli.output import emit_json, print_table, say, size_text, time_text
from api.client import ElastaneClient

Json = dict[str, Any]
Step = Annotated[int | None, typer.Option("--step", min=0, help="Which one; the newest where it is left out.")]


class ListByDefault(TyperGroup):
    """`checkpoints ID` is `checkpoints list ID`."""

    # The types are of a library that typer keeps to itself.
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["list", *args])


app = typer.Typer(cls=ListByDefault, help="Checkpoints of a job.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(
    context: typer.Context,
    job_id: JobId,
    now: Annotated[bool, typer.Option("--now", help="Ask for one now instead of listing.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the checkpoints of a job, newest first."""
    if now:
        return take_now(context, job_id, as_json=as_json)
    with client_of(context) as client:
        answer = client.checkpoints(job_id)
    if as_json:
        return emit_json(answer)
    columns = ("STEP", "SIZE", "FILES", "TOOK (S)", "AT (UTC)", "PINNED", "URI")
    return print_table(columns, [_row(found) for found in answer["items"]])


@app.command("now")
def take_now(context: typer.Context, job_id: JobId, as_json: AsJson = False) -> None:
    """Ask for one as soon as the step allows."""
    with client_of(context) as client:
        answer = client.checkpoint(job_id)
    if as_json:
        return emit_json(answer)
    return say("a checkpoint is asked for; `elastane events` says when it is saved")


@app.command()
def verify(context: typer.Context, job_id: JobId, step: Step = None, as_json: AsJson = False) -> None:
    """Read every byte; exit 0 only where it is what was written."""
    with client_of(context) as client:
        answer = client.verify(job_id, _step(client, job_id, step))
    if as_json:
        emit_json(answer)
    elif answer["whole"]:
        say(f"checkpoint of step {answer['step']} is whole: {answer['files']} files, {size_text(answer['size_bytes'])}")
    for problem in [] if as_json else answer["problems"]:
        say(problem, style="red")
    if not answer["whole"]:
        raise typer.Exit(1)


@app.command()
def pin(context: typer.Context, job_id: JobId, step: Step = None, as_json: AsJson = False) -> None:
    """Keep one for good."""
    _pin(context, job_id, step, pinned=True, as_json=as_json)


@app.command()
def unpin(context: typer.Context, job_id: JobId, step: Step = None, as_json: AsJson = False) -> None:
    """Let retention remove it again."""
    _pin(context, job_id, step, pinned=False, as_json=as_json)


@app.command()
def delete(
    context: typer.Context,
    job_id: JobId,
    step: Annotated[int, typer.Option("--step", min=0, help="Which one.")],
    as_json: AsJson = False,
) -> None:
    """Delete one."""
    with client_of(context) as client:
        client.delete_checkpoint(job_id, step)
    if as_json:
        return emit_json({"step": step, "deleted": True})
    return say(f"checkpoint of step {step} is deleted")


def export(
    context: typer.Context,
    job_id: JobId,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="A new folder, where the workers run.")],
    format_: Annotated[str, typer.Option("--format", metavar="safetensors|dcp")] = "safetensors",
    dtype: Annotated[str, typer.Option(metavar="float32|bfloat16|float16")] = "float32",
    average: Annotated[bool, typer.Option("--average", help="The average of the weights, not the weights.")] = False,
    step: Step = None,
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint as a Hugging Face folder, or as torch's distributed checkpoint."""
    with client_of(context) as client:
        found, place = _step(client, job_id, step), str(to.expanduser().absolute())
        answer = client.export(job_id, found, to=place, format=format_, dtype=dtype, average=average)
    if as_json:
        return emit_json(answer)
    return say(f"step {answer['step']} is in {answer['to']}: {', '.join(answer['files'])}")


def _pin(context: typer.Context, job_id: str, step: int | None, *, pinned: bool, as_json: bool) -> None:
    with client_of(context) as client:
        answer = client.pin(job_id, _step(client, job_id, step), pinned=pinned)
    if as_json:
        return emit_json(answer)
    return say(f"checkpoint of step {answer['step']} is {'pinned' if answer['pinned'] else 'no longer pinned'}")


def _step(client: ElastaneClient, job_id: str, step: int | None) -> int:
    if step is not None:
        return step
    items = client.checkpoints(job_id)["items"]
    if not items:
        raise typer.BadParameter(
            f"job {job_id} has no checkpoint yet; `elastane checkpoints now {job_id}` asks for one"
        )
    return int(items[0]["step"])


def _row(found: Json) -> tuple[object, ...]:
    figures = (size_text(found.get("size_bytes")), found.get("files"), found.get("duration_s"))
    return (found["step"], *figures, time_text(found.get("at")), "yes" if found.get("pinned") else "", found.get("uri"))
