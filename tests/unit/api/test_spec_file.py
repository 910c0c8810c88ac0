"""A spec on disk, and --set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from api.cli.connection import workers_argument
from api.cli.spec_file import load_spec


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text("model: gpt-tiny\ntraining: {steps: 200}\n")
    return path


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("training.steps=20", {"model": "gpt-tiny", "training": {"steps": 20}}),
        ("workers=2", {"model": "gpt-tiny", "training": {"steps": 200}, "workers": 2}),
        ("model.layers=3", {"model": {"layers": 3}, "training": {"steps": 200}}),
        ("training.optimizer.lr=3e-4", {"model": "gpt-tiny", "training": {"steps": 200, "optimizer": {"lr": 3e-4}}}),
        ("checkpoint.uri=a=b", {"model": "gpt-tiny", "training": {"steps": 200}, "checkpoint": {"uri": "a=b"}}),
        ("data={text: 'x/*'}", {"model": "gpt-tiny", "training": {"steps": 200}, "data": {"text": "x/*"}}),
        ("name=e4-x", {"model": "gpt-tiny", "training": {"steps": 200}, "name": "e4-x"}),
        ("ds_config=null", {"model": "gpt-tiny", "training": {"steps": 200}, "ds_config": None}),
    ],
)
def test_a_setting_sets_the_field_it_names(spec: Path, setting: str, expected: dict[str, Any]) -> None:
    assert load_spec(spec, [setting]) == expected


@pytest.mark.parametrize("setting", ["training.steps", "=3", "a..b=1", "a=[", ""])
def test_a_setting_that_is_none_is_wrong_usage(spec: Path, setting: str) -> None:
    with pytest.raises(typer.BadParameter):
        load_spec(spec, [setting])


@pytest.mark.parametrize("content", [b"- a\n", b"text", b"a: [", b"\xff\xfe\x00", b""])
def test_a_file_that_holds_no_fields_is_wrong_usage(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(typer.BadParameter, match=r"bad\.yaml"):
        load_spec(path, [])


def test_a_missing_file_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="cannot be read"):
        load_spec(tmp_path / "none.yaml", [])


@pytest.mark.parametrize(("text", "workers"), [("3", 3), ("1:4", {"min": 1, "max": 4})])
def test_workers_are_a_number_or_bounds(text: str, workers: object) -> None:
    assert workers_argument(text) == workers


@pytest.mark.parametrize("text", ["", "a", "1:", ":4", "1:2:3"])
def test_anything_else_is_no_number_of_workers(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        workers_argument(text)
