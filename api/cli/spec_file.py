"""A spec on disk, and `--set key=value`, as the document that is sent. Whether it is a good spec, the service says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer
import yaml


class _PlainLoader(yaml.SafeLoader):
    """YAML with JSON's types only: `2024-01-01` is a text, as it is to the service."""


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_spec(path: Path, settings: list[str]) -> dict[str, Any]:
    """The document of the file (JSON is YAML too; `-` is standard input) with every setting applied, in order."""
    text = sys.stdin.read() if str(path) == "-" else _text(path)
    document = _parsed(text, where=str(path))
    document = {} if document is None and settings else document
    if not isinstance(document, dict):
        raise typer.BadParameter(
            f"{path} holds {type(document).__name__}, not fields; the shortest spec is: model: gpt-tiny"
        )
    for setting in settings:
        assign(document, setting)
    return document


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{path} is not UTF-8 text (byte {error.start})") from error


def _parsed(text: str, *, where: str) -> Any:
    try:
        # A SafeLoader: no tag constructs an object.
        return yaml.load(text, Loader=_PlainLoader)
    except yaml.YAMLError as error:
        raise typer.BadParameter(f"{where} is not YAML: {error}") from error


def assign(document: dict[str, Any], setting: str) -> None:
    """`training.steps=20`, `workers=2`, `offload={optimizer: cpu}`: the value is YAML, the key a path of fields."""
    key, equals, value = setting.partition("=")
    names = key.strip().split(".")
    if not equals or not all(names):
        raise typer.BadParameter(f"--set {setting}: say it as key=value, as in training.steps=20")
    inner = document
    for name in names[:-1]:
        # A short form ("gpt-tiny", 2) gives way to the long one: a field of it was named.
        if not isinstance(inner.get(name), dict):
            inner[name] = {}
        inner = inner[name]
    inner[names[-1]] = _number(_parsed(value, where=f"--set {setting}"))


def _number(value: Any) -> Any:
    """YAML 1.1 reads 3e-4 as text; a user means the number."""
    if not isinstance(value, str):
        return value
    try:
        return float(value) if "e" in value.lower() and value[0] in "+-.0123456789" else value
    except ValueError:
        return value
