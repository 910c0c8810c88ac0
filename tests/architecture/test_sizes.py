"""A file that grows past a screen or ten misses a concept; so does a function past one."""

from __future__ import annotations

import ast
import re
from itertools import chain
from pathlib import Path

import pytest

from tests.architecture.source_tree import FOLDERS, ROOT, files, name, tree

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40
ENGINE_LINES = 3000
HAND_WRITTEN = (".py", ".ts", ".tsx", ".css", ".html", ".yaml", ".md")

# The dashboard's, by their layout: from its first line to the brace at the margin.
DASHBOARD_FUNCTION = re.compile(
    r"^(?:export )?(?:async )?(?:function (\w+)|const (\w+) = [^\n]*=> [{(]$).*?^[})]", re.M | re.S
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> list[Function]:
    return [node for node in ast.walk(tree(path)) if isinstance(node, Function)]


def lines(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


@pytest.mark.parametrize("suffix", HAND_WRITTEN)
def test_no_file_is_longer_than_400_lines(suffix: str) -> None:
    sizes = {name(path): len(path.read_text().splitlines()) for path in files(suffix)}
    assert {path: size for path, size in sizes.items() if size > MAX_FILE_LINES} == {}


def test_no_function_is_longer_than_40_lines() -> None:
    long = {
        f"{name(path)}:{function.lineno} {function.name}": lines(function)
        for path in files(".py")
        for function in functions(path)
        if lines(function) > MAX_FUNCTION_LINES
    }
    assert long == {}


def test_no_function_of_the_dashboard_is_longer_than_40_lines() -> None:
    found = {
        f"{name(path)} {match[1] or match[2]}": match[0].count("\n") + 1
        for path in chain(files(".ts"), files(".tsx"))
        for match in DASHBOARD_FUNCTION.finditer(path.read_text())
    }
    assert len(found) > 200, "the measure no longer sees them"
    assert {function: size for function, size in found.items() if size > MAX_FUNCTION_LINES} == {}


def test_the_engine_stays_below_3000_lines() -> None:
    assert sum(len(path.read_text().splitlines()) for path in files(".py", under=("workers/engine",))) < ENGINE_LINES


def test_the_measure_sees_every_folder() -> None:
    """A renamed folder would otherwise leave the measures above looking at nothing."""
    assert [folder for folder in FOLDERS if not (ROOT / folder).is_dir()] == []
    assert len(files(".py")) > 40
