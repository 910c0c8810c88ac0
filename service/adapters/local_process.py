"""Controllers as processes of this machine, detached, so that they outlive a service that is killed.

A controller is found by its arguments: the attempt's id is among them. So launching twice gives one process, and a
restarted service finds what a killed one started, without a file that could be missing or stale.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from service.adapters.processes import is_alive, send, with_arguments
from service.adapters.tool_answer import answer_in
from service.domain.attempt import Liveness
from service.domain.errors import ErasureFailed, ToolUnavailable
from service.ports import LaunchOrder, Tool
from service.settings import inherited_environment

MODULE = "workers.controller"


class LocalProcesses:
    """The port `Launcher`."""

    def __init__(self, *, python: str, home: Path, environment: Mapping[str, str]) -> None:
        self._python = python
        self._home = home
        self._environment = environment
        self._known: dict[str, int] = {}
        self._erasures: dict[str, subprocess.Popen[bytes]] = {}
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    async def launch(self, order: LaunchOrder) -> None:
        await asyncio.to_thread(self._launch, order)

    def _launch(self, order: LaunchOrder) -> None:
        if self._find(order.attempt_id) is not None:
            return
        folder = self._home / "logs" / order.job_id
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"attempt-{order.number}.log").open("ab") as log:
            child = subprocess.Popen(
                [
                    *(self._python, "-m", MODULE, "--service", order.service_url),
                    *("--job", order.job_id, "--attempt", order.attempt_id),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**inherited_environment(), **self._environment, "ELASTANE_ATTEMPT_TOKEN": order.token},
            )
        self._children[child.pid] = child
        self._known[order.attempt_id] = child.pid

    async def erased(self, *, uri: str, job_id: str) -> bool:
        child = self._erasures.get(job_id)
        if child is None:
            self._erasures[job_id] = await asyncio.to_thread(self._erase, uri, job_id)
            return False
        if child.poll() is None:
            return False
        del self._erasures[job_id]
        if child.returncode:
            raise ErasureFailed(uri=uri, cause=f"status {child.returncode}; see {self._erasure_log(job_id)}")
        return True

    def _erase(self, uri: str, job_id: str) -> subprocess.Popen[bytes]:
        """One that a killed service has started may still run: removing twice does no harm."""
        path = self._erasure_log(job_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as log:
            return subprocess.Popen(
                [self._python, "-m", "workers.checkpoint", "erase", uri, job_id],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**inherited_environment(), **self._environment},
            )

    def _erasure_log(self, job_id: str) -> Path:
        return self._home / "logs" / job_id / "erasure.log"

    async def run(
        self, tool: Tool, arguments: Sequence[str], *, timeout_s: float, users_code: bool = False
    ) -> Mapping[str, Any]:
        """Workers run on this machine, as this process does."""
        process = await asyncio.create_subprocess_exec(
            *(self._python, "-m", tool, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**inherited_environment(), **self._environment},
        )
        try:
            output, complaints = await asyncio.wait_for(process.communicate(), timeout_s)
        except TimeoutError:
            raise ToolUnavailable(f"it took longer than {timeout_s:.0f} s and was ended") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return answer_in((complaints + b"\n" + output).decode(errors="replace"))

    async def liveness(self, attempt_id: str) -> Liveness:
        return await asyncio.to_thread(self._liveness, attempt_id)

    def _liveness(self, attempt_id: str) -> Liveness:
        return Liveness.GONE if self._find(attempt_id) is None else Liveness.ALIVE

    def _find(self, attempt_id: str) -> int | None:
        """Our own children are known by pid and must be reaped; others are looked for by their arguments."""
        pid = self._known.get(attempt_id)
        child = self._children.get(pid) if pid is not None else None
        if child is not None and child.poll() is not None:
            del self._children[child.pid], self._known[attempt_id]
            return None
        if child is not None and pid is not None and is_alive(pid):
            return pid
        found = with_arguments([MODULE, "--attempt", attempt_id])
        return found[0] if found else None

    async def end(self, attempt_id: str, *, force: bool) -> None:
        pid = await asyncio.to_thread(self._find, attempt_id)
        if pid is not None:
            send([pid], signal.SIGKILL if force else signal.SIGTERM)
