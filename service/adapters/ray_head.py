"""`python -m service.adapters.ray_head`: the guardian of the embedded Ray, a process of its own.

It outlives a service that is killed, so that training goes on; it ends Ray, whole, when it is told to, when Ray breaks,
or when no service has shown itself for a long time. Whoever finds the folder's `head.json` can use what it guards.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from service.adapters.processes import end, with_environment
from service.adapters.ray_environment import MARK, ray_environment
from service.settings import inherited_environment

READY_WITHIN_S = 90.0
OBJECT_STORE_BYTES = 100_000_000  # tensors do not travel through it
LOOK_EVERY_S = 0.5
_STARTED = "Ray runtime started"


class Told(Exception):
    """SIGTERM or SIGINT came."""


def main(argv: list[str]) -> int:
    arguments = _arguments(argv)
    folder = Path(arguments.folder)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _on_signal)
    # Socket paths may have 107 bytes; Ray adds about 70 of its own.
    scratch = Path(tempfile.mkdtemp(prefix="elr-", dir="/tmp"))
    try:
        return _guard(folder, scratch, arguments)
    except Told:
        return 0
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        with contextlib.suppress(FileNotFoundError):
            (folder / "head.json").unlink()
        end(with_environment(f"{MARK}={folder}"), grace_s=1.0)
        shutil.rmtree(scratch, ignore_errors=True)


def _guard(folder: Path, scratch: Path, arguments: argparse.Namespace) -> int:
    port = _free_port()
    log = folder / "ray.log"
    with log.open("wb") as output:
        ray = subprocess.Popen(
            _command(port, scratch, arguments),
            env={**inherited_environment(), **ray_environment(folder), MARK: str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=scratch,
        )
    if not _wait_until_started(ray, log):
        return 1
    _publish(folder, address=f"127.0.0.1:{port}", slots=arguments.slots)
    keepalive, seen, silent_since = folder / "keepalive", 0.0, time.monotonic()
    while ray.poll() is None:
        time.sleep(LOOK_EVERY_S)
        shown = keepalive.stat().st_mtime if keepalive.exists() else 0.0
        if shown != seen:
            seen, silent_since = shown, time.monotonic()
        if time.monotonic() - silent_since > arguments.orphan_timeout_s:
            return 0
    return 1


def _command(port: int, scratch: Path, arguments: argparse.Namespace) -> list[str]:
    return [
        *(interpreter(scratch), "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        "--node-ip-address=127.0.0.1",
        f"--port={port}",
        # Without a number it would take a fixed one, which another Ray on this machine may have.
        f"--ray-client-server-port={_free_port()}",
        f"--dashboard-agent-listen-port={_free_port()}",
        f"--temp-dir={scratch}",
        f"--num-cpus={arguments.slots}",
        f"--num-gpus={arguments.gpus}",
        f"--object-store-memory={OBJECT_STORE_BYTES}",
        "--include-dashboard=false",
        "--disable-usage-stats",
    ]


def interpreter(scratch: Path) -> str:
    """Of a Ray to start, with `scratch` for a link: it starts workers by a line of shell without quotes, so the path
    must hold no space."""
    if not any(character.isspace() for character in sys.executable):
        return sys.executable
    environment = scratch / "python"
    environment.symlink_to(sys.prefix)
    return str(environment / Path(sys.executable).relative_to(sys.prefix))


def _wait_until_started(ray: subprocess.Popen[bytes], log: Path) -> bool:
    """An open port is not enough: a driver that comes before the raylet is ready dies without an exception."""
    until = time.monotonic() + READY_WITHIN_S
    while ray.poll() is None and time.monotonic() < until:
        if _STARTED in log.read_text(errors="replace"):
            return True
        time.sleep(0.1)
    return False


def _publish(folder: Path, *, address: str, slots: int) -> None:
    facts = {"pid": os.getpid(), "address": address, "slots": slots}
    draft = folder / "head.json.new"
    draft.write_text(json.dumps(facts))
    draft.replace(folder / "head.json")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _on_signal(number: int, frame: FrameType | None) -> None:
    raise Told


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m service.adapters.ray_head")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--orphan-timeout-s", type=float, required=True)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
