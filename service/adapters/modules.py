"""Functions that specs name, looked for where this machine's Python would import them from, and none of it is run."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import all_suffixes
from pathlib import Path

# Source that may make names, or modules, which it does not spell.
COMPUTED = re.compile(r"import \*|__getattr__|globals|setattr|exec|sys\.modules|__path__")


def lacking(function: str, folders: Sequence[str]) -> str | None:
    """What of `module:name` is surely not there, in a few words; None where it may be.

    folders: where modules are looked for beside the path of this interpreter.
    """
    module, _, name = function.partition(":")
    try:
        top, *inner = module.split(".")
        packages = _packages(top)
        places = [Path(folder, top) for folder in (*folders, *sys.path)] + (packages or [])
        found = [file for place in places for file in _files(place.joinpath(*inner))]
    except (OSError, ValueError, ImportError):
        return None
    if not found:
        # A finder of its own may know more than folders do, and a package make what it has no file for.
        hidden = packages is not None and (not inner or any(not package.is_dir() for package in packages))
        made = any(_may_have(file, None) for place in places for file in _files(place))
        return None if hidden or made else f"no module {module!r} on this machine"
    return None if any(_may_have(file, name) for file in found) else f"{module} has no function {name!r}"


def _packages(top: str) -> list[Path] | None:
    """Where the parts of a package are that is installed in whatever way; None where nothing of that name is. What has
    no dot in its name is found without an import."""
    found = importlib.util.find_spec(top)
    return None if found is None else [Path(place) for place in found.submodule_search_locations or ()]


def _files(place: Path) -> Iterator[Path]:
    """A folder without a source has no names of its own."""
    if place.is_dir():
        yield place / "__init__.py"
    yield from (file for suffix in all_suffixes() if (file := place.with_name(place.name + suffix)).is_file())


def _may_have(file: Path, name: str | None) -> bool:
    """Whether the module of that file spells the name, or may make it or others without spelling them."""
    if not file.exists():
        return False
    try:
        text = file.read_text() if file.suffix == ".py" else None
    except (OSError, ValueError):
        text = None
    return text is None or COMPUTED.search(text) is not None or (name is not None and name in text)
