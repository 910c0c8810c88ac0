"""A Ray of the tests' own and attempts on it: real controllers and workers, a service that is a stub."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.domain.spec import JobSpec
from service.domain.wire import Brief
from tests.fakes.service_stub import ServiceStub

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
    "OMP_NUM_THREADS": "1",
}


@contextmanager
def ray_head(temp_dir: str, *, slots: int = 8) -> Iterator[str]:
    """The address of a Ray on loopback, with a token of its own; all its processes are gone afterwards."""
    port = _free_port()
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--node-ip-address=127.0.0.1"]
    command += [f"--port={port}", "--include-dashboard=false", "--disable-usage-stats", f"--num-cpus={slots}"]
    command += ["--object-store-memory=80000000", f"--temp-dir={temp_dir}"]
    os.environ.update(QUIET, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    with open(f"{temp_dir}.log", "wb") as log:
        head = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        _await_line(Path(f"{temp_dir}.log"), "Ray runtime started")
        yield f"127.0.0.1:{port}"
    finally:
        end_process(head)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _await_line(log: Path, text: str, within_s: float = 60.0) -> None:
    end = time.monotonic() + within_s
    while text not in log.read_text():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)


@dataclass
class Attempt:
    """One controller under a stub."""

    service: ServiceStub
    process: subprocess.Popen[bytes]
    log: Path

    def wait_outcome(self, within_s: float = 90.0) -> Any:
        self.service.wait(lambda: self.service.outcome, within_s=within_s, what=f"an outcome; see {self.log}")
        assert self.process.wait(30) == 0, self.log.read_text()[-2000:]
        return self.service.outcome

    def wait_step(self, step: int, within_s: float = 60.0) -> None:
        self.service.wait(
            lambda: self.service.beats and (self.service.last.step >= step or self.service.outcome),
            within_s=within_s,
            what=f"step {step}",
        )

    def wait_size(self, count: int, within_s: float = 60.0) -> None:
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
    """Where attempts of one test module run."""

    address: str
    folder: Path
    started: int = 0

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
