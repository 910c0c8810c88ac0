"""The files of the house as the tests of its shape see them: paths relative to the root, parsed once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("service", "workers", "api", "migrations")
FOLDERS = (*PACKAGES, "deploy", "benchmarks", "examples", "tests")
GENERATED = {"__pycache__", "node_modules", "dist", "versions", ".venv", "results"}


def files(suffix: str, *, under: tuple[str, ...] = FOLDERS) -> list[Path]:
    """Every file with this suffix below the folders, except what tools wrote."""
    found = [path for folder in under for path in (ROOT / folder).rglob(f"*{suffix}")]
    return sorted(path for path in found if not GENERATED & set(path.relative_to(ROOT).parts))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(path: Path) -> set[str]:
    """The dotted names that a file imports, `from a import b` counted as `a.b`."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def imports_package(path: Path, package: str) -> bool:
    return any(found == package or found.startswith(package + ".") for found in imported(path))
