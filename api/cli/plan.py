"""`elastane plan`, `import-ds`, `import-fsdp`: what a spec would need, or would be, without submitting it."""

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
_CHOICE = ("", "STAGE", "OFFLOAD", "WORKERS")
_OUTLOOK = (
    *("ACCELERATOR", "MEMORY", "FITS", "STAGE", "OFFLOAD", "NEEDS"),
    *("STEP S", "TOKENS/S", "TRAFFIC", "LARGEST MODEL"),
)


def plan(context: typer.Context, spec: SpecFile, set_: Settings = None, *, as_json: AsJson = False) -> None:
    """Print memory and traffic per rank for every stage and offload, what fits, what is recommended."""
    with client_of(context) as client:
        answer = client.plan(load_spec(spec, set_ or []))
    if as_json:
        return emit_json(answer)
    capacity, host = answer.get("capacity_bytes"), answer.get("host_capacity_bytes")
    beside = f", and {size_text(host)} of its host" if host else ""
    room = f"; a worker has {size_text(capacity)}{beside}" if capacity else ""
    say(f"{answer['model']}: {answer['numel']:,} parameters, {answer['micro_batches']} micro-batches per step{room}")
    for kind, size in answer["activations_bytes"].items():
        say(f"activations of a micro-batch, {kind}: {size_text(size)}")
    recommended = answer["recommendation"]
    workers = f"{recommended['workers']} worker{'' if recommended['workers'] == 1 else 's'}"
    kinds = list(dict.fromkeys(kind for choice in answer["choices"] for kind in choice["bytes_by_kind"]))
    columns = (*_CHOICE, *(kind.upper() for kind in kinds), "STATES", "TOTAL", "SENT/STEP", "STEP S", "FITS")
    print_table(columns, _rows(answer["choices"], kinds, recommended))
    print_table(_OUTLOOK, map(_outlook, answer["outlooks"]))
    return say(
        f"recommended: stage {recommended['stage']}, offload {recommended['offload']}, {workers}: {recommended['why']}",
        style="green",
    )


ConfigFile = Annotated[Path, typer.Argument(metavar="FILE", help="The configuration, JSON or YAML; - reads input.")]


def import_ds(context: typer.Context, config: ConfigFile, set_: Settings = None, *, as_json: AsJson = False) -> None:
    """Print a DeepSpeed configuration as a spec, and key by key what became of it; exit 1 where one is refused.

    --set adds fields of the spec: model=gpt2, workers=4 (accumulation steps multiply the batch by the workers).
    """
    _import(context, config, set_, "ds_config", as_json=as_json)


def import_fsdp(context: typer.Context, config: ConfigFile, set_: Settings = None, *, as_json: AsJson = False) -> None:
    """Print FSDP's settings (torch's words, or an Accelerate file) as a spec, and what became of each; exit 1 where one
    is refused. --set adds fields of the spec."""
    _import(context, config, set_, "fsdp_config", as_json=as_json)


def _import(context: typer.Context, config: Path, set_: Settings, of: str, *, as_json: bool) -> None:
    spec: Json = {}
    for setting in set_ or []:
        assign(spec, setting)
    with client_of(context) as client:
        answer = client.import_config(load_spec(config, []), spec, of=of)
    if as_json:
        emit_json(answer)
    else:
        typer.echo(yaml.safe_dump(answer["spec"], sort_keys=False), nl=False)
        for verdict in answer["report"]:
            fix = f"; {verdict['fix']}" if verdict["fix"] else ""
            err().print(plain(f"{verdict['fate']:<8} {verdict['key']}: {verdict['why']}{fix}"))
    if any(verdict["fate"] == "refused" for verdict in answer["report"]):
        raise typer.Exit(1)


def _outlook(on: Json) -> list[object]:
    timed = on["step_s"] is not None
    return [
        on["accelerator"],
        size_text(on["memory_bytes"]),
        "yes" if on["fits"] else "no",
        on["stage"],
        on["offload"],
        size_text(on["device_bytes"]),
        f"{on['step_s']:.3g}" if timed else "?",
        f"{on['tokens_per_s']:,.0f}" if timed else "?",
        {True: "hidden", False: "decides", None: "?"}[on["traffic_hides"]],
        f"{on['largest_numel'] / 1e9:.1f}B",
    ]


def _rows(choices: list[Json], kinds: list[str], recommended: Json) -> Iterator[list[object]]:
    for choice in choices:
        same = all(choice[name] == recommended[name] for name in ("stage", "offload", "workers"))
        by_kind = [size_text(sum(choice["bytes_by_kind"].get(kind, {}).values())) for kind in kinds]
        fits = {True: "yes", False: "no", None: "?"}[choice["fits"]]
        columns = [choice["stage"], choice["offload"], choice["workers"], *by_kind]
        totals = [size_text(choice[of]) for of in ("states_bytes", "total_bytes", "bytes_per_step")]
        step_s = "?" if choice["step_s"] is None else f"{choice['step_s']:.3g}"
        yield [Text("*" if same else "", style="green"), *columns, *totals, step_s, fits]
