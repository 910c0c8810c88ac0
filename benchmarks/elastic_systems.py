"""Three systems that train one model on workers that come and go: ours, Ray Train elastic, torchrun elastic.

Each starts on two workers and can be told to grow to three, to shrink to two, and loses a worker by SIGKILL. An event's
figures: `pause_s`, from the end of the last step before it to the end of the first after it, less a normal step;
`redone_steps`, those whose work was lost; ours also says what it moved and where the time went.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TypeVar

from api.client import ElastaneClient
from benchmarks.elastic_peer import BATCH, MODEL, SEQ_LEN
from examples.local_service import ROOT, LocalService, end, free_port

T = TypeVar("T")
Json = dict[str, Any]
Figures = dict[str, float]
EVENT_TIMEOUT_S = 240.0
# Steps after a start or an event before the next one: a machine at rest, and a normal step to compare with.
SETTLE_STEPS = 12


class SystemFailed(Exception):
    """A system did not come to the number of workers that it was told, or its processes ended."""


class System(Protocol):
    def start(self) -> None: ...

    def grow(self) -> Figures: ...

    def shrink(self) -> Figures: ...

    def kill(self) -> Figures:
        """A worker, by SIGKILL; returns once training goes on, and the system has three workers again if it can."""
        ...

    def stop(self) -> None: ...


def wait_for(what: str, look: Callable[[], T | None], *, timeout_s: float = EVENT_TIMEOUT_S) -> T:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if (found := look()) is not None:
            return found
        time.sleep(0.1)
    raise SystemFailed(f"{what}: not within {timeout_s:.0f} s")


# ---- ours ------------------------------------------------------------------------------------------------------------


class Ours:
    """The service as a user starts it, driven through the REST API."""

    def __init__(self, folder: Path, *, stage: int = 2) -> None:
        self._service = LocalService(home=folder / "home", slots=3)
        self._stage = stage
        self._client: ElastaneClient
        self._job = ""

    def start(self) -> None:
        self._service.start()
        self._client = ElastaneClient(self._service.url)
        job = self._client.submit(
            {
                "model": MODEL,
                "stage": self._stage,
                "precision": "fp32",
                "workers": {"min": 1, "max": 3},
                "training": {"steps": 10**6, "batch_size": BATCH, "micro_batch_size": 2, "seq_len": SEQ_LEN},
                "checkpoint": {"every_steps": 1000},
            }
        )
        self._job = job["id"]
        self._client.scale(self._job, 2)
        self._settled(2)

    def grow(self) -> Figures:
        return self._scaled(3)

    def shrink(self) -> Figures:
        return self._scaled(2)

    def kill(self) -> Figures:
        seen = self._newest()
        victim = max(self._client.workers(self._job)["items"], key=lambda worker: worker["rank"])
        step_s = self._step_s()
        os.kill(victim["pid"], signal.SIGKILL)
        figures = self._told("recovered", after=seen, step_s=step_s)
        self._settled(2)
        return figures

    def stop(self) -> None:
        self._client.cancel(self._job)
        self._service.stop()

    def _scaled(self, workers: int) -> Figures:
        seen, step_s = self._newest(), self._step_s()
        self._client.scale(self._job, workers)
        figures = self._told("resized", after=seen, step_s=step_s)
        self._settled(workers)
        return figures

    def _events(self) -> list[Json]:
        return list(self._client.events(self._job, limit=1000)["items"])

    def _newest(self) -> int:
        return len(self._events())

    def _told(self, kind: str, *, after: int, step_s: float) -> Figures:
        def look() -> Json | None:
            return next((each for each in self._events()[after:] if each["kind"] == kind), None)

        numbers = wait_for(kind, look)["payload"]
        pause_s = float(numbers["pause_s"])
        parts = {name: float(value) for name, value in numbers.items() if isinstance(value, int | float)}
        return {**parts, "pause_s": pause_s - step_s, "raw_pause_s": pause_s, "step_s": step_s}

    def _step_s(self) -> float:
        series = self._client.metrics(self._job, names="step_s", points=1000)["series"][0]["points"]
        return float(median(point["value"] for point in series[-SETTLE_STEPS:]))

    def _settled(self, workers: int) -> None:
        def at_size() -> int | None:
            job = self._client.job(self._job)
            there = job["state"] == "running" and job["workers"]["actual"] == workers
            return int(job["step"]) if there else None

        first = wait_for(f"{workers} workers", at_size)

        def on() -> bool | None:
            step = at_size()
            return True if step is not None and step >= first + SETTLE_STEPS else None

        wait_for(f"{SETTLE_STEPS} steps on {workers} workers", on)


# ---- the peers -------------------------------------------------------------------------------------------------------


class StepLog:
    """What rank 0 of a peer wrote."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "steps.jsonl"

    def read(self) -> list[Json]:
        if not self._path.exists():
            return []
        lines = self._path.read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def settled(self, world: int, *, since: int) -> list[Json]:
        """The lines once enough steps were made at this size after line `since`."""

        def look() -> list[Json] | None:
            lines = self.read()
            newest = lines[since:][-SETTLE_STEPS:]
            there = len(newest) == SETTLE_STEPS and all(line["world"] == world for line in newest)
            return lines if there else None

        return wait_for(f"{SETTLE_STEPS} steps on {world} workers", look)


def pause(lines: list[Json], *, since: int) -> Figures:
    """Of the change of membership after line `since`: the longest silence, over a normal step."""
    around = lines[since - 1 :]
    gaps = [later["at"] - earlier["at"] for earlier, later in pairwise(around)]
    place = gaps.index(max(gaps))
    normal_s = median(later["at"] - earlier["at"] for earlier, later in pairwise(lines[:since]))
    redone = max(0, around[place]["step"] - around[place + 1]["step"] + 1)
    return {"pause_s": max(gaps) - normal_s, "raw_pause_s": max(gaps), "step_s": normal_s, "redone_steps": redone}


class Peer(ABC):
    """A system whose loop is `elastic_peer.train`; subclasses say how workers come and go."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._log = StepLog(folder)

    def start(self) -> None:
        self._launch()
        self._log.settled(2, since=0)

    def grow(self) -> Figures:
        return self._changed(self._add_worker, world=3)

    def shrink(self) -> Figures:
        return self._changed(self._remove_worker, world=2)

    def kill(self) -> Figures:
        """On two workers, and back to two: both peers start the dead one anew."""
        victim = self._log.read()[-1]["pids"][-1]
        return self._changed(lambda: end(victim), world=2)

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def _launch(self) -> None: ...

    @abstractmethod
    def _add_worker(self) -> None: ...

    @abstractmethod
    def _remove_worker(self) -> None: ...

    def _changed(self, act: Callable[[], None], *, world: int) -> Figures:
        since = len(self._log.read())
        act()
        # Steps of the old membership go on for a while: skip them.
        return pause(self._after(since, world), since=since)

    def _after(self, since: int, world: int) -> list[Json]:
        def restarted() -> int | None:
            lines = self._log.read()
            pids = lines[since - 1]["pids"]
            return next((place for place, line in enumerate(lines) if place >= since and line["pids"] != pids), None)

        first = wait_for("a new membership", restarted)
        return self._log.settled(world, since=first)


class Torchrun(Peer):
    """One agent per worker, as if each were a node; the rendezvous is theirs."""

    def _launch(self) -> None:
        self._port = free_port()
        self._agents: list[subprocess.Popen[bytes]] = []
        self._add_worker()
        self._add_worker()

    def _add_worker(self) -> None:
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:3", "--nproc-per-node=1"]
        command += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self._port}", "--rdzv-id=bench"]
        command += ["--max-restarts=100", "--rdzv-conf=last_call_timeout=2,join_timeout=120", "--monitor-interval=0.5"]
        command += ["-m", "benchmarks.elastic_peer", str(self._folder)]
        self._agents.append(
            subprocess.Popen(
                command,
                cwd=ROOT,
                # Without it a gloo group after a restart can wait for ever on the agent's store.
                env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
                stdout=(self._folder / f"agent-{len(self._agents)}.log").open("ab"),
                stderr=subprocess.STDOUT,
            )
        )

    def _remove_worker(self) -> None:
        # The first agent keeps the rendezvous.
        self._agents.pop().terminate()

    def stop(self) -> None:
        (self._folder / "stop").touch()
        for agent in self._agents:
            try:
                agent.wait(20)
            except subprocess.TimeoutExpired:
                agent.kill()


class RayTrain(Peer):
    """`TorchTrainer` with a range of workers, on a cluster whose nodes come and go; it looks for nodes every second."""

    def _launch(self) -> None:
        self._driver = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.elastic_ray", str(self._folder)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "RAY_TRAIN_V2_ENABLED": "1", "RAY_worker_niceness": "0"},
            stdin=subprocess.PIPE,
            stdout=(self._folder / "driver.log").open("ab"),
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _order(self, word: str) -> None:
        assert self._driver.stdin is not None
        self._driver.stdin.write(word + "\n")
        self._driver.stdin.flush()

    def _add_worker(self) -> None:
        self._order("add")

    def _remove_worker(self) -> None:
        self._order("drain")

    def stop(self) -> None:
        (self._folder / "stop").touch()
        self._order("stop")
        try:
            self._driver.wait(60)
        except subprocess.TimeoutExpired:
            self._driver.kill()


SYSTEMS: dict[str, Callable[[Path], System]] = {"ours": Ours, "ray-train": RayTrain, "torchrun": Torchrun}
