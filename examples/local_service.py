"""`elastane serve` as a child process: a free loopback port, a home of its own, ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[1]


class ServiceFailed(Exception):
    """The service did not come up; the message holds the end of its log."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True, kw_only=True)
class LocalService:
    """A service of one's own. It may be killed and started again: the home and the port stay."""

    home: Path
    port: int = field(default_factory=free_port)
    slots: int | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.home / "serve.log"

    def start(self, *, timeout_s: float = 120.0) -> None:
        """Returns when the service is ready; raises ServiceFailed with the end of its log."""
        self.home.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "api.cli.main", "serve", "--port", str(self.port), "--home", str(self.home)]
        command += ["--slots", str(self.slots)] if self.slots else []
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C in this terminal reaches us alone, and we end it in good order.
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_until_ready(time.monotonic() + timeout_s)

    def kill(self) -> None:
        """SIGKILL to the service alone; what it started goes on."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self, *, timeout_s: float = 40.0) -> list[int]:
        """Ask, wait, then insist. Returns the processes that had to be killed; an orderly end leaves none."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        left = self.descendants()
        for pid in left:
            end(pid)
        return left

    def descendants(self) -> list[int]:
        """Every process that carries our home in its environment, whoever its parent is by now (Linux)."""
        mark = f"ELASTANE_HOME={self.home}".encode()
        return [pid for pid in running_pids() if pid != os.getpid() and mark in environment_of(pid)]

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def _environment(self) -> dict[str, str]:
        """Ours without the user's own service settings."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ELASTANE_")}
        return {**kept, "ELASTANE_HOME": str(self.home), "OMP_NUM_THREADS": kept.get("OMP_NUM_THREADS", "1")}

    def _wait_until_ready(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            if self.process is None or self.process.poll() is not None:
                raise ServiceFailed(f"the service ended at its start; the end of its log:\n{self.tail()}")
            try:
                if httpx.get(f"{self.url}/readyz", timeout=2.0, trust_env=False).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        raise ServiceFailed(f"the service was not ready in time; the end of its log:\n{self.tail()}")


@contextlib.contextmanager
def local_service(*, name: str, slots: int | None = None) -> Iterator[LocalService]:
    """A ready service in a new home, which goes with it. Raises ServiceFailed also where its end was not orderly."""
    local = LocalService(home=Path(tempfile.mkdtemp(prefix=f"el-{name}-")), slots=slots)
    try:
        local.start()
        yield local
    finally:
        left, log = local.stop(), local.tail(200)
        shutil.rmtree(local.home, ignore_errors=True)
    if left:
        raise ServiceFailed(f"these had to be killed: {left}\n{log}")


def running_pids() -> list[int]:
    proc = Path("/proc")
    return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()] if proc.is_dir() else []


def environment_of(pid: int) -> set[bytes]:
    """NAME=value of a process; nothing for one that has ended or is not ours to read."""
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()


def end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
