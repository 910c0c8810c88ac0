"""The commands that the contract promises, line by line."""

from __future__ import annotations

from typing import Any

import pytest
from typer.main import get_command

from api.cli.follow import event_line
from api.cli.main import app

PROMISED: dict[str, set[str]] = {
    "serve": {"--host", "--port", "--home", "--slots"},
    "submit": {"--set", "--follow"},
    **{name: set() for name in ("jobs", "show", "events", "explain", "priority", "cluster", "top", "doctor")},
    "logs": {"-f"},
    **{name: set() for name in ("scale", "pause", "resume", "cancel", "plan")},
    "export": {"--to", "--format"},
    **{f"keys {name}": set() for name in ("create", "list", "revoke", "quota")},
    **{f"webhooks {name}": set() for name in ("create", "list", "delete")},
    "db upgrade": {"--home"},
}


def find(words: str) -> Any:
    found: Any = get_command(app)
    for word in words.split():
        found = found.commands[word]
    return found


@pytest.mark.parametrize("words", PROMISED)
def test_each_command_of_the_contract_is_there_with_its_options_and_json(words: str) -> None:
    options = {option for parameter in find(words).params for option in parameter.opts}
    assert PROMISED[words] | {"--json"} <= options


def test_every_command_there_is_takes_json() -> None:
    def leaves(command: Any) -> list[Any]:
        below = getattr(command, "commands", None)
        return [command] if below is None else [leaf for inner in below.values() for leaf in leaves(inner)]

    missing = [
        leaf.name for leaf in leaves(get_command(app)) if "--json" not in {o for p in leaf.params for o in p.opts}
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            {"kind": "workers_missing", "step": 3, "message": "Waiting for 1 of 2 workers: no free slot"},
            "step 3  workers_missing  Waiting for 1 of 2 workers: no free slot",
        ),
        (
            {"kind": "worker_crashed", "message": "ValueError: bad\nat line 3", "payload": {"worker": "w1"}},
            "worker_crashed  ValueError: bad",
        ),
        (
            {"kind": "checkpoint_progress", "payload": {"written_bytes": 2048, "elapsed_s": 0.5}},
            "checkpoint_progress  written 2.00 KiB, elapsed_s 0.5",
        ),
        ({"kind": "checkpoint_started", "message": "", "payload": {}}, "checkpoint_started"),
    ],
)
def test_an_event_is_told_in_its_sentence_or_in_its_numbers(event: dict[str, Any], line: str) -> None:
    assert event_line({"at": "2026-01-01T12:00:01.5Z", **event}).plain == f"12:00:01  {line}"
