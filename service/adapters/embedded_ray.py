"""The Ray that the service brings: started or adopted, kept alive while a service is there, ended whole."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import subprocess
import sys
import threading
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from service.adapters.gpus import Gpu, gpus
from service.adapters.processes import end, has_arguments, with_arguments, with_environment
from service.adapters.ray_environment import MARK, ray_environment
from service.domain.cluster import ClusterFacts, Node
from service.domain.errors import ElastaneError, RayNotStarted
from service.settings import Settings, inherited_environment

log = logging.getLogger(__name__)

MODULE = "service.adapters.ray_head"
START_WITHIN_S = 100.0
KEEPALIVE_S = 5.0
DEFAULT_SLOTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What `head.json` says."""

    pid: int
    address: str
    slots: int


class EmbeddedRay:
    """The port `RayHost`."""

    embedded = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = settings.home / "ray"
        self._lock = asyncio.Lock()
        self._head: Head | None = None
        self._trouble: str | None = None
        self._untouched: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        # A thread that starts the guardian goes on when its task is cancelled: the end must not overtake it.
        self._spawning = threading.Lock()
        self._ended = False

    @property
    def environment(self) -> dict[str, str]:
        """For processes that attach to it."""
        return ray_environment(self._folder)

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        return gpus()

    @property
    def slots(self) -> int:
        """Those of the Ray that runs, which may be an adopted one, else those that it will have."""
        return self._head.slots if self._head else self._settings.slots or len(self.gpus) or DEFAULT_SLOTS

    @property
    def address(self) -> str:
        return self._head.address if self._head else ""

    def begin(self) -> None:
        self._tasks = [asyncio.create_task(self._start_early()), asyncio.create_task(self._keep_alive())]

    async def _start_early(self) -> None:
        # Looking for GPUs runs a program: not in the event loop.
        await asyncio.to_thread(getattr, self, "gpus")
        # Whoever launches asks again and hears the trouble then.
        with contextlib.suppress(ElastaneError):
            await self.ensure()

    async def _keep_alive(self) -> None:
        while True:
            self._touch()
            await asyncio.sleep(KEEPALIVE_S)

    def _touch(self) -> None:
        """A full disk today is no reason to be silent tomorrow: the guardian would end Ray."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self._folder / "keepalive").touch()
            self._untouched = None
        except OSError as error:
            self._untouched = f"cannot write the keepalive of the embedded Ray ({error}); without it Ray ends by itself"
            log.warning("%s", self._untouched)

    async def ensure(self) -> str:
        async with self._lock:
            # Read anew: a guardian that cleans up after Ray broke lives a while longer, its file does not.
            self._head = self._read_head()
            if self._head is None:
                self._head = await self._start()
            self._trouble = None
            return self._head.address

    def trouble(self) -> str | None:
        return self._trouble or self._untouched

    def _read_head(self) -> Head | None:
        """None where there is none, or its guardian is gone and Ray with it."""
        try:
            head = Head(**json.loads((self._folder / "head.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return head if has_arguments(head.pid, self._arguments) else None

    @property
    def _arguments(self) -> list[str]:
        return [MODULE, str(self._folder)]

    def _guardians(self) -> list[int]:
        return with_arguments(self._arguments)

    async def _start(self) -> Head:
        """A guardian that a killed service has just started is waited for, not doubled; so is one that cleans up after
        Ray broke, and then another one is started."""
        self._ended, spawned = False, False
        until = asyncio.get_running_loop().time() + START_WITHIN_S
        while asyncio.get_running_loop().time() < until:
            head = await asyncio.to_thread(self._read_head)
            if head is not None:
                return head
            if not await asyncio.to_thread(self._is_starting):
                if spawned:
                    break
                spawned = True
                await asyncio.to_thread(self._spawn)
            await asyncio.sleep(0.2)
        log = self._folder / "ray.log"
        self._trouble = f"the embedded Ray did not start; see {log}"
        raise RayNotStarted(cause=_tail(log), log=str(log))

    def _is_starting(self) -> bool:
        """Our own child is known by its pid: in the first moment of its life it has no arguments to be found by."""
        own = self._process is not None and self._process.poll() is None
        return own or bool(self._guardians())

    def _spawn(self) -> None:
        with self._spawning:
            if not self._ended:
                self._start_guardian()

    def _start_guardian(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self._folder / "head.json").unlink(missing_ok=True)
        # What a guardian that was killed has left behind.
        end(with_environment(f"{MARK}={self._folder}"), grace_s=1.0)
        _write_token(self._folder / "token")
        with (self._folder / "guardian.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", MODULE, "--folder", str(self._folder)),
                    *("--slots", str(self.slots), "--gpus", str(len(self.gpus))),
                    *("--orphan-timeout-s", str(self._settings.ray_orphan_timeout_s)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=inherited_environment(),
            )

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await asyncio.to_thread(self._end)
        self._head = None

    def _end(self) -> None:
        with self._spawning:
            self._ended = True
        end(self._guardians(), grace_s=8.0)
        end(with_environment(f"{MARK}={self._folder}"), grace_s=1.0)
        if self._process is not None:
            self._process.wait()


class EmbeddedCapacity:
    """The port `Capacity`: what this machine offers is known without asking Ray."""

    def __init__(self, ray: EmbeddedRay) -> None:
        self._ray = ray

    async def facts(self) -> ClusterFacts:
        gpus = self._ray.gpus
        node = Node(
            id="local",
            address="127.0.0.1",
            alive=True,
            slots=self._ray.slots,
            memory_bytes=_memory_bytes(),
            accelerator=gpus[0].name if gpus else None,
            accelerator_memory_bytes=min((gpu.memory_bytes for gpu in gpus), default=None),
        )
        return ClusterFacts(
            nodes=(node,),
            slot_kind="gpu" if gpus else "cpu",
            max_slots=self._ray.slots,
            address=self._ray.address,
        )


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _write_token(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return "it left no log"
    return lines[-1][:300] if lines else "it said nothing"
