"""The guardian of the embedded Ray, around a stand-in for Ray that is a process with a child of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from service.adapters.embedded_ray import MODULE, EmbeddedCapacity, EmbeddedRay
from service.adapters.processes import end, is_alive, with_arguments, with_environment
from service.adapters.ray_environment import MARK
from service.domain.errors import RayNotStarted
from service.settings import Settings

STAND_IN = """
import os, signal, subprocess, sys
if os.environ.get("RAY_STAND_IN") == "broken":
    sys.exit("no such luck")
deaf = signal.SIG_IGN if os.environ.get("RAY_STAND_IN") == "stubborn" else signal.SIG_DFL
child = subprocess.Popen(
    ["sleep", "1000"], start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGTERM, deaf)
)
print("Ray runtime started", flush=True)
signal.pause()
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "path" / "ray" / "scripts"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "scripts.py").write_text(STAND_IN)
    own = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'path'}:{Path(__file__).resolve().parents[2]}:{own}")
    return tmp_path / "a home"


def make(home: Path, **fields: Any) -> EmbeddedRay:
    return EmbeddedRay(Settings(home=home, **fields))


@pytest.fixture
async def ray(home: Path) -> AsyncIterator[EmbeddedRay]:
    made = make(home)
    yield made
    await made.end()


def family(home: Path) -> list[int]:
    return with_environment(f"{MARK}={home / 'ray'}") + with_arguments([MODULE, str(home / "ray")])


async def gone(home: Path) -> bool:
    for _ in range(400):
        if not family(home):
            return True
        await asyncio.sleep(0.05)
    return False


async def test_it_is_started_once_and_ended_whole(home: Path, ray: EmbeddedRay) -> None:
    first, second = await asyncio.gather(ray.ensure(), ray.ensure())
    assert first == second
    assert first.startswith("127.0.0.1:")
    members = family(home)
    assert len(members) == 3
    await ray.end()
    assert not [pid for pid in members if is_alive(pid)]
    assert not (home / "ray" / "head.json").exists()


async def test_a_restarted_service_adopts_it(home: Path, ray: EmbeddedRay) -> None:
    address, members = await ray.ensure(), family(home)
    restarted = make(home, slots=9)
    assert await restarted.ensure() == address
    assert family(home) == members
    # The Ray that runs has the slots it was started with.
    assert (await EmbeddedCapacity(restarted).facts()).slots == 4
    await restarted.end()
    assert await gone(home)


async def test_a_guardian_that_is_just_starting_is_waited_for(home: Path, ray: EmbeddedRay) -> None:
    """The service was killed while it started Ray."""
    starting = asyncio.create_task(ray.ensure())
    while not with_arguments([MODULE, str(home / "ray")]):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert await make(home).ensure() == await starting
    assert len(with_arguments([MODULE, str(home / "ray")])) == 1


async def test_when_ray_breaks_the_guardian_cleans_up_and_the_next_call_starts_another(
    home: Path, ray: EmbeddedRay
) -> None:
    first = await ray.ensure()
    ours = set(with_environment(f"{MARK}={home / 'ray'}"))
    (head,) = ours & set(with_arguments(["ray.scripts.scripts", "start"]))
    os.kill(head, signal.SIGKILL)
    assert await gone(home)
    assert await ray.ensure() != first


async def test_a_guardian_that_cleans_up_after_a_broken_ray_is_not_taken_for_a_living_one(
    home: Path, ray: EmbeddedRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_STAND_IN", "stubborn")
    first, (guardian,) = await ray.ensure(), with_arguments([MODULE, str(home / "ray")])
    ours = set(with_environment(f"{MARK}={home / 'ray'}"))
    (head,) = ours & set(with_arguments(["ray.scripts.scripts", "start"]))
    os.kill(head, signal.SIGKILL)
    while (home / "ray" / "head.json").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert is_alive(guardian)
    assert await ray.ensure() != first


async def test_a_killed_guardian_s_ray_is_ended_before_another_is_started(home: Path, ray: EmbeddedRay) -> None:
    await ray.ensure()
    orphans = with_environment(f"{MARK}={home / 'ray'}")
    end(with_arguments([MODULE, str(home / "ray")]), grace_s=0.0)
    await ray.ensure()
    assert not [pid for pid in orphans if is_alive(pid)]


async def test_without_any_service_it_ends_by_itself(home: Path) -> None:
    await make(home, ray_orphan_timeout_s=0.5).ensure()
    assert await gone(home)


async def test_a_ray_that_does_not_start_is_told_with_its_last_words(
    home: Path, ray: EmbeddedRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_STAND_IN", "broken")
    with pytest.raises(RayNotStarted, match="no such luck"):
        await ray.ensure()
    assert ray.trouble() is not None
    assert await gone(home)


async def test_its_token_is_readable_by_its_owner_alone(home: Path, ray: EmbeddedRay) -> None:
    await ray.ensure()
    token = home / "ray" / "token"
    assert (token.stat().st_mode & 0o777, len(token.read_text())) == (0o600, 64)
    assert ray.environment["RAY_AUTH_TOKEN_PATH"] == str(token)


async def test_a_keepalive_that_cannot_be_written_is_told_and_tried_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = make(home)
    Path.touch(home)  # a file where the folder should be
    turns = 0

    async def turn(_: float) -> None:
        nonlocal turns
        turns += 1
        if turns == 1:
            assert "cannot write the keepalive" in (ray.trouble() or "")
            Path.unlink(home)
        elif turns == 2:
            raise asyncio.CancelledError

    monkeypatch.setattr("service.adapters.embedded_ray.asyncio.sleep", turn)
    with pytest.raises(asyncio.CancelledError):
        await ray._keep_alive()
    assert (home / "ray" / "keepalive").exists()
    assert ray.trouble() is None
