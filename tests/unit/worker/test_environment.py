"""What a worker enters before code of the user's, and what of it may be seen afterwards."""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import sys
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pytest

from service.domain.environment import EnvironmentSpec
from tests.fakes.wheel import wheel
from workers.user_code import SourceUnreachable, SpecError, import_function
from workers.worker import archive, failure, kept
from workers.worker.archive import fetch
from workers.worker.environment import Places, enter
from workers.worker.messages import Crashed, Line, Ready
from workers.worker.packages import packages
from workers.worker.redaction import MASK, CleanStream, Redactor

SECRET = 'pa"ss wörd/1234'
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----"


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Entering changes the process: after each test it is as it was."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    for name in ("TOKEN", "GREETING"):
        monkeypatch.setenv(name, "")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "mine").write_text(f"{SECRET}\n")
    return Places(secrets=tmp_path / "secrets", cache=tmp_path / "cache")


def test_a_secret_is_in_the_environment_and_hidden_from_then_on(places: Places) -> None:
    redactor = Redactor()
    enter(EnvironmentSpec(secrets={"TOKEN": "mine"}, variables={"GREETING": "hello"}), places, redactor)
    assert (os.environ["TOKEN"], os.environ["GREETING"]) == (SECRET, "hello")
    assert redactor.clean(f"hello {SECRET}!") == f"hello {MASK}!"


@pytest.mark.parametrize(("content", "problem"), [(None, "no such secret"), ("short", "8 to"), ("x" * 70_000, "8 to")])
def test_a_secret_that_cannot_be_used_is_the_users_to_mend(places: Places, content: str | None, problem: str) -> None:
    assert places.secrets is not None
    if content is not None:
        (places.secrets / "other").write_text(content)
    with pytest.raises(SpecError, match=problem) as caught:
        enter(EnvironmentSpec(secrets={"TOKEN": "other"}), places, Redactor())
    assert caught.value.field == "environment.secrets.TOKEN"
    assert failure.cause(caught.value) == "user"
    assert "short" not in str(caught.value)


@pytest.mark.parametrize("archived", [False, True])
def test_modules_and_relative_paths_are_of_the_folder(places: Places, tmp_path: Path, archived: bool) -> None:
    place, name = tmp_path / "code", f"brought_{archived}".lower()
    place.mkdir()
    (place / f"{name}.py").write_text("def answer(): return open('answer.txt').read()")
    (place / "answer.txt").write_text("42")
    if archived:
        with zipfile.ZipFile(tmp_path / "code.zip", "w") as packed:
            for file in place.iterdir():
                packed.write(file, file.name)
                file.unlink()
    environment = EnvironmentSpec(working_dir="code.zip" if archived else "code")
    enter(environment, places, Redactor())
    assert import_function(f"{name}:answer", field="model.python")() == "42"
    os.chdir(tmp_path)
    # A second worker of this machine.
    enter(environment, places, Redactor())
    assert Path("answer.txt").read_text() == "42"


def test_a_folder_that_is_missing_is_the_users_and_a_network_is_not(places: Places, tmp_path: Path) -> None:
    (tmp_path / "no.zip").write_text("no archive")
    for place in ("nowhere", "no.zip"):
        with pytest.raises(SpecError, match=r"environment\.working_dir") as caught:
            enter(EnvironmentSpec(working_dir=place), places, Redactor())
        assert caught.value.value == place
    with pytest.raises(SourceUnreachable) as unreachable:
        fetch("https://127.0.0.1:9/code.zip")
    assert failure.cause(unreachable.value) == "machine"


def test_an_archive_that_would_fill_the_disk_is_refused_before_it_is_unpacked(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("zeros", bytes(2**20))
    monkeypatch.setattr(archive, "UNPACKED_LIMIT_BYTES", 2**20 - 1)
    with pytest.raises(SpecError, match="when unpacked") as caught:
        enter(EnvironmentSpec(working_dir="bomb.zip"), places, Redactor())
    assert caught.value.field == "environment.working_dir"
    assert not [path for path in (places.cache / "working_dirs").iterdir() if path.is_dir()]


def test_folders_that_nobody_entered_lately_go_and_those_in_use_stay(tmp_path: Path) -> None:
    shelf, names = tmp_path / "packages", [f"{age:03d}" for age in range(kept.KEPT + 5)]
    for age, name in enumerate(names):
        (shelf / name).mkdir(parents=True)
        os.utime(shelf / name, (10_000 - age, 10_000 - age))
    (shelf / ".killed-x").mkdir()
    (shelf / ".making-x").mkdir()
    used, making = os.open(shelf / names[-1], os.O_RDONLY), os.open(shelf / "making.lock", os.O_CREAT)
    fcntl.flock(used, fcntl.LOCK_SH)
    fcntl.flock(making, fcntl.LOCK_EX)
    kept.entered(shelf / "new", lambda draft: None)
    left = sorted(path.name for path in shelf.iterdir() if path.is_dir())
    assert left == sorted([".making-x", "new", *names[: kept.KEPT - 1], names[-1]])
    os.close(used)
    os.close(making)
    kept.entered(shelf / "new", lambda draft: pytest.fail("it is there"))
    assert len([path for path in shelf.iterdir() if path.is_dir()]) == kept.KEPT


def test_packages_are_added_once_and_none_of_the_workers_is_changed(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    wheel(tmp_path, "added_by_a_job", requires="torch>=2")
    environment = EnvironmentSpec(pip=("./added_by_a_job-1.0-py3-none-any.whl",))
    enter(environment, places, Redactor())
    assert importlib.import_module("added_by_a_job").VERSION == "1.0"
    folder = packages(environment, cache=places.cache, clean=str)
    assert not list(folder.glob("torch*")), "what the worker has is not installed again"
    before = folder.stat()
    assert packages(environment, cache=places.cache, clean=str).stat() == before

    wheel(tmp_path, "wants_another_torch", requires="torch<1")
    for wanted in ("./wants_another_torch-1.0-py3-none-any.whl", "no-such-package-of-anybody"):
        with pytest.raises(SpecError, match="pip says: ") as caught:
            packages(EnvironmentSpec(pip=(wanted,)), cache=places.cache, clean=str)
        assert caught.value.field == "environment.pip"
    assert [path.suffix for path in (places.cache / "packages").iterdir()].count("") == 1, "no draft is left"


def test_a_secret_is_masked_in_the_forms_in_which_programs_print_it() -> None:
    redactor = Redactor()
    redactor.hide(SECRET)
    as_json = [json.dumps(SECRET, ensure_ascii=ascii)[1:-1] for ascii in (True, False)]
    for printed in (SECRET, repr([SECRET])[2:-2], quote(SECRET, safe=""), *as_json):
        assert redactor.clean(f"before {printed} after") == f"before {MASK} after"


def test_a_secret_of_several_lines_and_one_that_was_cut_off_are_masked() -> None:
    redactor = Redactor()
    redactor.hide(KEY)
    assert redactor.clean(KEY) == MASK
    assert redactor.clean("got kqhkiG9w0BAQEF") == f"got {MASK}"
    assert redactor.clean("it was: MIIEvQIBA") == f"it was: {MASK}"
    assert redactor.clean("it was: MIIE") == "it was: MIIE"


def test_no_report_and_no_line_leaves_with_a_secret(tmp_path: Path) -> None:
    redactor, told = Redactor(), list[str]()
    redactor.hide(SECRET)
    crash = Crashed(generation=1, step=2, cause="user", reason=f"ValueError: {SECRET}")
    assert redactor.cleaned(crash) == replace(crash, reason=f"ValueError: {MASK}")
    line = Line(at=datetime.now(UTC), level="info", text=SECRET, rank=1)
    assert redactor.cleaned(line) == replace(line, text=MASK)
    ready = Ready(pid=1, node=SECRET, device="cpu", warm_s=1.0)
    assert redactor.cleaned(ready) == ready, "an address that a controller connects to"
    with (tmp_path / "out").open("w") as beyond:
        stream = CleanStream(beyond, redactor, tell=told.append)
        # In pieces, as `print` and progress bars write.
        for piece in ("token ", SECRET[:5], SECRET[5:], "\nend\n", "\r 1 %", "\r 2 %", "\rbye"):
            stream.write(piece)
        assert told == [f"token {SECRET}", "end", " 1 %", " 2 %"]
        stream.finish()
    assert (tmp_path / "out").read_bytes().decode() == f"token {MASK}\nend\n\r 1 %\r 2 %\rbye"
    assert told[-1] == "bye"
