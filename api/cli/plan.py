"""`elastane plan`: what a spec would need, without submitting it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from rich.text import Text

from api.cli.connection import AsJson, client_of
from api.cli.jobs import Settings, SpecFile
from api.cli.output import emit_json, print_table, say, size_text
from api.cli.spec_file import load_spec

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


def _rows(choices: list[Json], kinds: list[str], recommended: Json) -> Iterator[list[object]]:
    for choice in choices:
        same = all(choice[name] == recommended[name] for name in ("stage", "offload", "workers"))
        by_kind = [size_text(sum(choice["bytes_by_kind"].get(kind, {}).values())) for kind in kinds]
        fits = {True: "yes", False: "no", None: "?"}[choice["fits"]]
        columns = [choice["stage"], choice["offload"], choice["workers"], *by_kind]
        totals = [size_text(choice["states_bytes"]), size_text(choice["total_bytes"])]
        yield [Text("*" if same else "", style="green"), *columns, *totals, f"{choice['elements_per_step']:,}", fits]
