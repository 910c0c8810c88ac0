"""The vocabulary is closed: a file named after nothing in particular collects everything."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.architecture.source_tree import files, name, tree

EMPTY_WORDS = {"util", "utils", "common", "helper", "helpers", "misc", "manager", "handler", "processor"}
EMPTY_FILES = EMPTY_WORDS | {"base"}


def words(identifier: str) -> set[str]:
    """`loadHTTPHelper_b` -> {load, http, helper, b}"""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", identifier)}


def definitions(path: Path) -> list[str]:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [node.name for node in ast.walk(tree(path)) if isinstance(node, kinds)]


def test_no_file_or_folder_has_an_empty_name() -> None:
    sources = [path for suffix in (".py", ".ts", ".tsx") for path in files(suffix)]
    named = {
        name(path): path.relative_to(path.parents[len(name(path).split("/")) - 1]).with_suffix("") for path in sources
    }
    assert [
        file for file, path in named.items() if EMPTY_FILES & {word for part in path.parts for word in words(part)}
    ] == []


def test_no_class_or_function_has_an_empty_name() -> None:
    found = [
        f"{name(path)}: {defined}"
        for path in files(".py")
        for defined in definitions(path)
        if words(defined) & EMPTY_WORDS
    ]
    assert found == []


def test_words_splits_every_way_of_writing_a_name() -> None:
    assert words("loadHTTPHelper_b2") == {"load", "http", "helper", "b", "2"}
