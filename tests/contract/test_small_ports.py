"""The bus and the files of this machine."""

from __future__ import annotations

import array
import asyncio
import os
from pathlib import Path

import pytest

from service.adapters.bus import LocalBus
from service.adapters.files import LocalFiles
from service.ports import Files
from tests.fakes.world import FakeFiles


async def test_a_call_that_comes_while_nobody_waits_is_kept_and_melts_with_the_next() -> None:
    bus = LocalBus()
    bus.wake("a")
    bus.wake("a")
    async with asyncio.timeout(2):
        await bus.wait("a", timeout_s=60)
    waiting = asyncio.create_task(bus.wait("a", timeout_s=60))
    done, _ = await asyncio.wait({waiting}, timeout=0.05)
    assert not done
    bus.wake("b")
    done, _ = await asyncio.wait({waiting}, timeout=0.05)
    assert not done
    bus.wake("a")
    async with asyncio.timeout(2):
        await waiting


async def test_who_waits_looks_by_itself_after_a_while() -> None:
    async with asyncio.timeout(2):
        await LocalBus().wait("a", timeout_s=0.01)


@pytest.fixture(params=["fake", "local"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "a.json").write_text('{"a": [1]}')
    fake = FakeFiles(f"{tmp_path}/*.txt", f"{tmp_path}/a.txt", size=1)
    fake.documents[f"{tmp_path}/a.json"] = {"a": [1]}
    (tmp_path / "mine.py").write_text("def build():\n    raise SystemExit\n\n\nbuild()\n")
    fake.lacking = {
        "mine:other": "mine has no function 'other'",
        "nowhere.at:all": "no module 'nowhere.at' on this machine",
    }
    (tmp_path / "tokens").write_bytes(array.array("H", [7, 3, 9] * 200_000).tobytes())
    fake.tokens[f"{tmp_path}/tokens"] = (3, 9)
    return LocalFiles(tmp_path) if request.param == "local" else fake


async def test_a_glob_is_as_large_as_the_files_that_it_matches(files: Files, tmp_path: Path) -> None:
    assert await files.size_bytes(f"{tmp_path}/*.txt") == 1
    assert await files.size_bytes(f"{tmp_path}/a.txt") == 1
    for nothing in (f"{tmp_path}/*.md", f"{tmp_path}", "/nonexistent/*", "a\x00b", ""):
        assert await files.size_bytes(nothing) is None
        assert not await files.exists(nothing)
    assert await files.exists(f"{tmp_path}/*.txt")


async def test_a_folder_with_a_file_is_not_walked_to_its_end(tmp_path: Path) -> None:
    """A working_dir may hold a data set, or links that lead back: one file says that there is something in it."""
    (tmp_path / "module.py").write_text("")
    for endless in ("a", "b"):
        (tmp_path / endless).symlink_to(tmp_path)
    async with asyncio.timeout(2):
        assert await LocalFiles().exists(f"{tmp_path}/**")


async def test_a_document_is_read_where_it_is_one(files: Files, tmp_path: Path) -> None:
    assert await files.document(f"{tmp_path}/a.json") == {"a": [1]}
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "list").write_text("[1]")
    (tmp_path / "deep").write_text("[" * 100_000)
    (tmp_path / "large").write_text('{"a": "' + "x" * 2**20 + '"}')
    for nothing in ("a.txt", "missing", "pipe", "list", "deep", "large", "", "a\x00b"):
        assert await files.document(f"{tmp_path}/{nothing}") is None


async def test_the_smallest_and_the_largest_token_of_a_file_are_found(files: Files, tmp_path: Path) -> None:
    assert await files.token_range(f"{tmp_path}/tokens", "uint16") == (3, 9)
    for nothing in ("missing", "", "a\x00b"):
        assert await files.token_range(f"{tmp_path}/{nothing}", "uint16") is None


async def test_a_function_is_looked_for_and_nothing_is_run(files: Files) -> None:
    for there in ("mine:build", "json:loads", "sys:exit", "pydantic.fields:Field", "os.path:join"):
        assert await files.lacks(there) is None
    assert await files.lacks("mine:other") == "mine has no function 'other'"
    assert await files.lacks("nowhere.at:all") == "no module 'nowhere.at' on this machine"


@pytest.mark.parametrize(
    ("function", "lack"),
    [
        ("package:build", None),
        ("package.inner:build", None),
        ("package.inner:other", "package.inner has no function 'other'"),
        ("package.none:build", "no module 'package.none' on this machine"),
        ("package:other", "package has no function 'other'"),
        ("bare.inner:build", None),
        ("bare:build", "bare has no function 'build'"),
        ("made:any", None),
        ("binary:any", None),
        ("latin:any", None),
        ("json.nope:x", "no module 'json.nope' on this machine"),
    ],
)
async def test_what_may_be_there_is_left_to_the_workers(tmp_path: Path, function: str, lack: str | None) -> None:
    for folder in ("package", "bare"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "inner.py").write_text("build = len")
    (tmp_path / "package" / "__init__.py").write_text("from .inner import build")
    (tmp_path / "made.py").write_text("from package.inner import *")
    (tmp_path / "binary.abi3.so").write_bytes(b"\x7fELF")
    (tmp_path / "latin.py").write_bytes(b"# \xe9")
    assert await LocalFiles(tmp_path).lacks(function) == lack


async def test_a_folder_is_removed_whole_and_may_be_removed_again(tmp_path: Path) -> None:
    folder = tmp_path / "job" / "step-1"
    folder.mkdir(parents=True)
    (folder / "x").write_text("x")
    files = LocalFiles()
    for _ in range(2):
        await files.remove_folder(str(tmp_path / "job"))
        assert not (tmp_path / "job").exists()


async def test_what_is_not_a_folder_of_this_machine_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    files = LocalFiles()
    for uri in ("s3://bucket/job", "relative/job", str(tmp_path / "link")):
        await files.remove_folder(uri)
    assert (tmp_path / "real").is_dir()
