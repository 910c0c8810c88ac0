"""`elastane plan`, `elastane import-ds`: what a spec would need, or would be, without submitting it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.text import Text

from api.cli.connection import AsJson, client_of
from api.cli.jobs import Settings, SpecFile
from api.cli.output import emit_json, err, plain, print_table, say, size_text
from api.cli.spec_file import assign, load_spec

Json = dict[str, Any]


def plan(context: typer.Context, spec: SpecFile, set_: Settings = None, *, as_json: AsJson = False) -> None:
    """Print memory and traffic per rank for every stage and offload, what fits, what is recommended."""
    with client_of(context) as client:
        answer = client.plan(load_spec(spec, set_ or []))
    if as_json:
        return emit_json(answer)
    capacity = answer.get("capacity_bytes")
    room = f"; a worker has {size_text(capacity)}" if capacity else ""
    say(f"{answer['model']}: {answer['numel']:,} parameters, {answer['micro_batches']} micro-batches per step{room}")
    recommended = answer["recommendation"]
    kinds = list(dict.fromkeys(kind for choice in answer["choices"] for kind in choice["bytes_by_kind"]))
    print_table(
        (
            "",
            "STAGE",
            "OFFLOAD",
            "WORKERS",
            *(kind.upper() for kind in kinds),
            "STATES",
            "TOTAL",
            "ELEMENTS/STEP",
            "FITS",
        ),
        _rows(answer["choices"], kinds, recommended),
    )
    return say(
        f"recommended: stage {recommended['stage']}, offload {recommended['offload']}, "
        f"{recommended['workers']} workers: {recommended['why']}",
        style="green",
    )


ConfigFile = Annotated[Path, typer.Argument(metavar="FILE", help="A DeepSpeed configuration, JSON; - reads input.")]


def import_ds(context: typer.Context, config: ConfigFile, set_: Settings = None, *, as_json: AsJson = False) -> None:
    """Print a DeepSpeed configuration as a spec, and key by key what became of it; exit 1 where one is refused.

    --set adds fields of the spec: model=gpt2, workers=4 (accumulation steps multiply the batch by the workers).
    """
    spec: Json = {}
    for setting in set_ or []:
        assign(spec, setting)
    with client_of(context) as client:
        answer = client.import_ds(load_spec(config, []), spec)
    if as_json:
        emit_json(answer)
    else:
        typer.echo(yaml.safe_dump(answer["spec"], sort_keys=False), nl=False)
        for verdict in answer["report"]:
            fix = f"; {verdict['fix']}" if verdict["fix"] else ""
            err().print(plain(f"{verdict['fate']:<8} {verdict['key']}: {verdict['why']}{fix}"))
    if any(verdict["fate"] == "refused" for verdict in answer["report"]):
        raise typer.Exit(1)


def _rows(choices: list[Json], kinds: list[str], recommended: Json) -> Iterator[list[object]]:
    for choice in choices:
        same = all(choice[name] == recommended[name] for name in ("stage", "offload", "workers"))
        by_kind = [size_text(sum(choice["bytes_by_kind"].get(kind, {}).values())) for kind in kinds]
        fits = {True: "yes", False: "no", None: "?"}[choice["fits"]]
        columns = [choice["stage"], choice["offload"], choice["workers"], *by_kind]
        totals = [size_text(choice["states_bytes"]), size_text(choice["total_bytes"])]
        yield [Text("*" if same else "", style="green"), *columns, *totals, f"{choice['elements_per_step']:,}", fits]
