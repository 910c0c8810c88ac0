"""A Ray of the tests' own and attempts on it: real controllers and workers, a service that is a stub."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.adapters.ray_environment import ray_environment
from service.adapters.ray_head import interpreter
from service.domain.spec import JobSpec
from service.domain.wire import Brief, Outcome
from tests.elastic.specs import paced
from tests.fakes.service_stub import ServiceStub


@contextmanager
def ray_head(folder: Path, *, slots: int = 8) -> Iterator[str]:
    """The address of an embedded Ray, as the service starts it; all its processes are gone afterwards.

    Meanwhile the environment of this process is one in which drivers find it.
    """
    folder.mkdir()
    (folder / "token").write_text(secrets.token_hex(32))
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {**ray_environment(folder), "OMP_NUM_THREADS": "1"}.items():
            environment.setenv(name, value)
        yield from _started(folder, slots)


def _started(folder: Path, slots: int) -> Iterator[str]:
    command = [sys.executable, "-m", "service.adapters.ray_head", "--folder", str(folder), "--slots", str(slots)]
    head = subprocess.Popen([*command, "--gpus", "0", "--orphan-timeout-s", "900"], start_new_session=True)
    try:
        facts = folder / "head.json"
        end = time.monotonic() + 100
        while not facts.exists():
            assert head.poll() is None, (folder / "ray.log").read_text()
            assert time.monotonic() < end, "Ray did not start"
            time.sleep(0.1)
        yield json.loads(facts.read_text())["address"]
    finally:
        end_process(head)


# What a driver sees of a Ray, as JSON: the nodes that offer an accelerator, and the workers on each.
_LOOK = """
import json, sys, ray
from workers.controller.ray_tables import workers_on
ray.init(address=sys.argv[1], log_to_driver=False, logging_level=40)
nodes = [node for node in ray.nodes() if f"accelerator_type:{sys.argv[2]}" in node["Resources"] and node["Alive"]]
print(json.dumps({node["NodeID"]: workers_on(node["NodeID"]) for node in nodes}))
"""


def nodes_with(accelerator: str, *, address: str) -> dict[str, list[str]]:
    """Ray's id of each living node that offers it -> names of the workers there."""
    look = subprocess.run([sys.executable, "-c", _LOOK, address, accelerator], check=True, stdout=subprocess.PIPE)
    found: dict[str, list[str]] = json.loads(look.stdout.splitlines()[-1])
    return found


@contextmanager
def ray_nodes(address: str, count: int, *, accelerator: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many more nodes of a Ray, with a slot for one worker each."""
    nodes: list[subprocess.Popen[bytes]] = []
    scratch = Path(tempfile.mkdtemp(prefix="el-"))
    command = [interpreter(scratch), "-m", "tests.elastic.ray_node", address, accelerator]
    try:
        # One after the other: two that start at once on one machine get into each other's way.
        while len(nodes) < count:
            nodes.append(subprocess.Popen(command, stdout=subprocess.PIPE))
            assert nodes[-1].stdout is not None
            with nodes[-1].stdout as output:
                assert b"registered" in output.readline(), "a node did not start"
        yield nodes
    finally:
        for node in nodes:
            end_process(node)
        shutil.rmtree(scratch)


@dataclass
class Attempt:
    """One controller under a stub."""

    service: ServiceStub
    process: subprocess.Popen[bytes]
    log: Path

    def ends(self, result: str, within_s: float = 180.0) -> Outcome:
        """How it ended, which must be this."""
        self.service.wait(lambda: self.service.outcome, within_s=within_s, what="an outcome")
        outcome = self.service.outcome
        assert outcome is not None
        told = [event.payload for event in self.service.events("worker_crashed")]
        assert outcome.result == result, f"{outcome}; {told}; {self.log.read_text()[-2000:]}"
        assert self.process.wait(30) == 0, self.log.read_text()[-2000:]
        return outcome

    def wait_step(self, step: int, within_s: float = 180.0) -> None:
        self.service.wait(
            lambda: self.service.beats and (self.service.last.step >= step or self.service.outcome),
            within_s=within_s,
            what=f"step {step}",
        )

    def wait_size(self, count: int, within_s: float = 180.0) -> None:
        self.service.wait(
            lambda: (
                self.service.outcome
                or (self.service.last.phase == "running" and len(self.service.last.workers) == count)
            ),
            within_s=within_s,
            what=f"{count} workers",
        )

    def scale(self, count: int) -> None:
        self.service.workers = count
        self.wait_size(count)


@dataclass
class Bench:
    """Where attempts run."""

    address: str
    folder: Path
    started: int = 0

    def spec(self, **settings: Any) -> dict[str, Any]:
        """Of a job that trains slowly until `hurry`; settings of `paced`."""
        self.pace(0.05)
        return paced(pace_file=self.folder / "pace", **settings)

    def pids(self, title: str) -> list[int]:
        """Processes of this Ray with that title."""
        mark = f"{self.folder}/ray/token".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                ours = mark in (folder / "environ").read_bytes()
                if ours and (folder / "cmdline").read_bytes().startswith(title.encode()):
                    found.append(int(folder.name))
        return found

    def pace(self, pause_s: float) -> None:
        """Every forward from now on takes this much longer."""
        draft = self.folder / "pace.new"
        draft.write_text(str(pause_s))
        draft.rename(self.folder / "pace")

    def hurry(self) -> None:
        self.pace(0.0)

    @contextmanager
    def attempt(
        self,
        spec: dict[str, Any],
        *,
        workers: int,
        job: str | None = None,
        number: int = 1,
        orphan_timeout_s: float = 60.0,
    ) -> Iterator[Attempt]:
        """A running attempt; its controller is ended afterwards."""
        self.started += 1
        job = job or f"job-{self.started}"
        given = Brief(
            job_id=job,
            attempt_id=f"{job}-{number}",
            attempt_number=number,
            spec=JobSpec.model_validate(spec),
            workers=workers,
            checkpoint_uri=str(self.folder / "checkpoints"),
            cache_folder=str(self.folder / "cache"),
            log_folder=str(self.folder / "logs" / f"{job}-{number}"),
            ray_address=self.address,
            namespace="elastane",
            orphan_timeout_s=orphan_timeout_s,
        )
        service = ServiceStub(given)
        log = self.folder / f"{job}-{number}.log"
        command = [sys.executable, "-m", "workers.controller", "--service", service.url, "--job", job]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--attempt", given.attempt_id],
                env={**os.environ, "ELASTANE_ATTEMPT_TOKEN": "token-of-a-test"},
                stdout=output,
                stderr=output,
            )
        try:
            yield Attempt(service, process, log)
        finally:
            end_process(process)
            service.close()


def end_process(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, and SIGKILL where that is not enough."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int], within_s: float = 10.0) -> bool:
    end = time.monotonic() + within_s
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(is_alive, pids))
