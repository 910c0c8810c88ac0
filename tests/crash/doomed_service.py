"""A service that kills itself with SIGKILL at a named commit: `python -m tests.crash.doomed_service HOME PORT POINT`.

POINT is `Jobs._accept:before:3`: the method that commits, on which side of the commit, at the how manieth time; `-` for
none. Nothing in the service knows of it: the name is that of the method whose frame called `commit`.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import signal
import socket
import stat
import sys
from pathlib import Path

from api.cli.server import Server
from api.main import create_app
from service.adapters.database.unit_of_work import SqlUnit
from service.adapters.local_process import LocalProcesses
from service.domain.cluster import ClusterFacts, Node
from service.settings import Settings
from service.wiring import Services, build
from tests.api.live import NoRay

SLOTS = 8
ONE_STEP = Path(__file__).with_name("one_step.py")


class Room:
    async def facts(self) -> ClusterFacts:
        node = Node(id="n", address="127.0.0.1", alive=True, slots=SLOTS)
        return ClusterFacts(nodes=(node,), slot_kind="cpu", max_slots=SLOTS, address="nowhere")


def doom(point: str) -> None:
    """Replaces the commit of every unit by one that may be the last thing this process does."""
    name, side, count = point.split(":")
    left, commit = int(count), SqlUnit.commit

    async def dying(self: SqlUnit) -> None:
        nonlocal left
        # Who awaits a coroutine that begins is below it on the stack.
        frame = sys._getframe(1)
        owner = type(frame.f_locals.get("self")).__name__
        hit = f"{owner}.{frame.f_code.co_name}" == name
        left -= hit
        if hit and left == 0 and side == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        await commit(self)
        if hit and left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    SqlUnit.commit = dying  # type: ignore[method-assign]


def interpreter(home: Path) -> str:
    """What stands for Python where the service launches `python -m workers.controller`: it runs the one step."""
    path = home / "one-step"
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(ONE_STEP))} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def wire(settings: Settings) -> Services:
    services, ray, room = build(settings), NoRay(), Room()
    launcher = LocalProcesses(python=interpreter(settings.home), home=settings.home, environment={})
    services.ray = ray
    services.attempts = dataclasses.replace(services.attempts, ray=ray)
    services.census = dataclasses.replace(services.census, ray=ray)
    services.cluster = dataclasses.replace(services.cluster, capacity=room)
    services.plans = dataclasses.replace(services.plans, capacity=room)
    services.jobs = dataclasses.replace(services.jobs, plans=services.plans)
    services.reconciler = dataclasses.replace(
        services.reconciler, ray=ray, capacity=room, launcher=launcher, leaving=services.attempts.leaving
    )
    return services


def main() -> None:
    home, port, point = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    if point != "-":
        doom(point)
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)
    settings = Settings(home=home, port=port, tick_s=0.1, leave_timeout_s=0.0)
    Server(create_app(settings, wire=wire), settings, as_json=True).run(sockets=[listener])


if __name__ == "__main__":
    main()
