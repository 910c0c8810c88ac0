"""Each folder says what lives in it; the product page's commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.architecture.source_tree import FOLDERS, GENERATED, PACKAGES, ROOT, files, name

MAX_README_LINES = 40


def folders() -> list[Path]:
    """Every folder that holds Python, and the top ones."""
    holding = {path.parent for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")} | {
        ROOT / folder for folder in FOLDERS
    }
    return sorted(folder for folder in holding if not GENERATED & set(folder.relative_to(ROOT).parts))


def commands() -> list[list[str]]:
    """The lines of README's shell blocks, as words, without comments."""
    blocks = re.findall(r"```(?:sh|bash|console)\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    return [words for words in lines if words]


def test_every_folder_has_a_readme() -> None:
    assert [str(folder.relative_to(ROOT)) for folder in folders() if not (folder / "README.md").is_file()] == []


def test_a_folder_s_readme_is_read_in_a_minute() -> None:
    sizes = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in (f / "README.md" for f in folders())
        if path.is_file()
    }
    assert {path: size for path, size in sizes.items() if not 3 <= size <= MAX_README_LINES} == {}


def test_a_folder_s_readme_names_its_files() -> None:
    """A revision of the schema is told by its own name."""
    omitted = [
        name(path)
        for path in files(".py", under=PACKAGES)
        if not re.match(r"(__init__|\d{4}_\w+)\.py$", path.name)
        and path.name not in (path.parent / "README.md").read_text()
    ]
    assert omitted == []


def test_make_has_the_targets_that_the_readme_names() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {words[1] for words in commands() if words[0] == "make"}
    assert named >= {"demo", "test"}
    assert named <= targets


def test_the_command_has_what_the_readme_names() -> None:
    from typer.main import get_command

    from api.cli.main import app

    known = set(get_command(app).commands)
    named = {words[1] for words in commands() if words[0].endswith("elastane")}
    assert named
    assert named <= known


def test_the_files_that_the_readme_names_exist() -> None:
    text = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    paths = [word for words in commands() for word in words if re.match(r"(examples|deploy|benchmarks)/", word)]
    assert [path for path in {*links, *paths} if not (ROOT / path).exists()] == []
