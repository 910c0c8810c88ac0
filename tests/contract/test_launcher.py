"""Controllers as processes: the fake and real, detached ones answer the same."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.adapters.local_process import MODULE, LocalProcesses
from service.adapters.processes import commands, end, is_alive, with_arguments, with_environment
from service.domain.attempt import Liveness
from service.domain.errors import ErasureFailed
from service.ports import Launcher, LaunchOrder
from tests.fakes.world import FakeLauncher

# The interpreter behind the virtual environment: a shebang cannot hold a space, and the checkout's path may have one.
STUB = f"""#!{Path(sys.executable).resolve()}
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in sys.argv else lambda *_: sys.exit(0))
print(os.environ["ELASTANE_ATTEMPT_TOKEN"], os.environ["COLOUR"], flush=True)
signal.pause()
"""


@dataclass
class Bench:
    """A launcher, and another one that knows nothing of what the first has done: the service restarted."""

    launcher: Launcher
    restarted: Callable[[], Launcher]


def order(attempt: str) -> LaunchOrder:
    facts = {"number": 1, "token": "t0", "service_url": "http://127.0.0.1:1"}
    return LaunchOrder(job_id="job-1", attempt_id=attempt, **facts)  # type: ignore[arg-type]


@pytest.fixture(params=["fake", "local"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    if request.param == "fake":
        fake = FakeLauncher()
        yield Bench(fake, lambda: fake)
        return
    stub = tmp_path / "python"
    stub.write_text(STUB)
    stub.chmod(0o755)

    def make() -> LocalProcesses:
        return LocalProcesses(python=str(stub), home=tmp_path, environment={"COLOUR": "blue"})

    yield Bench(make(), make)
    end(with_arguments([str(stub), MODULE]), grace_s=0.0)


async def until(launcher: Launcher, attempt: str, wanted: Liveness) -> None:
    for _ in range(500):
        if await launcher.liveness(attempt) is wanted:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{attempt} is not {wanted} after 10 s")


async def test_what_was_never_launched_is_gone(bench: Bench) -> None:
    assert await bench.launcher.liveness("nobody") is Liveness.GONE


async def test_a_launched_controller_lives_until_it_is_ended(bench: Bench) -> None:
    await bench.launcher.launch(order("a-1"))
    assert await bench.launcher.liveness("a-1") is Liveness.ALIVE
    assert await bench.launcher.liveness("a-2") is Liveness.GONE
    await bench.launcher.end("a-1", force=True)
    await until(bench.launcher, "a-1", Liveness.GONE)
    await bench.launcher.end("a-1", force=True)


async def test_a_restarted_service_finds_it_and_does_not_launch_it_again(bench: Bench) -> None:
    await bench.launcher.launch(order("a-1"))
    second = bench.restarted()
    # A process has no arguments for some microseconds of its start; a restart takes longer than that.
    await until(second, "a-1", Liveness.ALIVE)
    await second.launch(order("a-1"))
    await second.end("a-1", force=True)
    await until(bench.launcher, "a-1", Liveness.GONE)
    await until(second, "a-1", Liveness.GONE)


async def test_one_that_was_ended_may_be_launched_again(bench: Bench) -> None:
    for _ in range(2):
        await bench.launcher.launch(order("a-1"))
        await bench.launcher.end("a-1", force=True)
        await until(bench.launcher, "a-1", Liveness.GONE)


# ---- real processes alone -------------------------------------------------------------------------------------------


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    path = tmp_path / "python"
    path.write_text(STUB)
    path.chmod(0o755)
    return path


async def test_a_controller_has_its_token_its_environment_and_its_log(stub: Path, tmp_path: Path) -> None:
    launcher = LocalProcesses(python=str(stub), home=tmp_path, environment={"COLOUR": "blue"})
    await launcher.launch(order("a-1"))
    log = tmp_path / "logs" / "job-1" / "attempt-1.log"
    for _ in range(500):
        if log.read_text():
            break
        await asyncio.sleep(0.02)
    assert log.read_text() == "t0 blue\n"
    (pid,) = with_arguments([MODULE, "--attempt", "a-1"])
    assert "t0" not in commands()[pid]
    assert with_environment("ELASTANE_ATTEMPT_TOKEN=t0") == [pid]
    await launcher.end("a-1", force=False)
    await until(launcher, "a-1", Liveness.GONE)


async def test_the_data_plane_empties_a_job_s_folder_in_a_store(tmp_path: Path) -> None:
    for job in ("job-1", "job-2"):
        (tmp_path / "store" / job / "step-00000001").mkdir(parents=True)
        (tmp_path / "store" / job / "step-00000001" / "manifest.json").touch()
    launcher = LocalProcesses(python=sys.executable, home=tmp_path, environment={})
    uri = f"file://{tmp_path}/store"

    async def empty(uri: str) -> None:
        while not await launcher.erased(uri=uri, job_id="job-1"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    await empty(uri)
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["job-2"]
    with pytest.raises(ErasureFailed, match="status 1; see "):
        await empty("ftp://nowhere")


async def test_a_child_that_hides_its_environment_is_found_by_its_parent(tmp_path: Path) -> None:
    line = f"env -i sleep 30 & echo $! > '{tmp_path}/pid.new'; mv '{tmp_path}/pid.new' '{tmp_path}/pid'; wait"
    parent = await asyncio.create_subprocess_exec("sh", "-c", line, env={"TOKEN": "family", "PATH": os.environ["PATH"]})
    for _ in range(500):
        if (tmp_path / "pid").exists():
            break
        await asyncio.sleep(0.02)
    child = int((tmp_path / "pid").read_text())
    assert set(with_environment("TOKEN=family")) == {parent.pid, child}
    end([parent.pid, child], grace_s=1.0)
    await parent.wait()


async def test_ending_a_stubborn_process_takes_it_by_force(stub: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        str(stub), "stubborn", stdout=asyncio.subprocess.PIPE, env={"ELASTANE_ATTEMPT_TOKEN": "t", "COLOUR": "red"}
    )
    assert child.stdout is not None
    await child.stdout.readline()
    await asyncio.to_thread(end, [child.pid], grace_s=0.2)
    assert await child.wait() == -signal.SIGKILL
    assert not is_alive(child.pid)
