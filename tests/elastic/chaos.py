"""Faults and resizes drawn from a seed, against one job of real controllers and workers; its history at the end."""

from __future__ import annotations

import dataclasses
import logging
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from service.domain.arrangement import Arrangement
from service.domain.spec import Offload
from tests.elastic import diary
from tests.elastic.cluster import Attempt, Bench, gone, is_alive
from tests.elastic.history import Change, History
from tests.elastic.reference import undisturbed

log = logging.getLogger(__name__)

MOST = 4
JOB = "chaos"
# A worker that was stopped is taken for dead after so long.
SILENCE_S = 3.0
SETTLES_S = 120.0
PACE_S = 0.03
ARRANGEMENTS = (
    Arrangement(stage=0),
    Arrangement(stage=1),
    Arrangement(stage=2, offload=Offload(optimizer="cpu")),
    Arrangement(stage=3),
    Arrangement(stage=3, offload=Offload(optimizer="nvme", params="cpu")),
)


class Chaos:
    """`run` does so many faults to a job of so many steps. `done`: what was done, how often."""

    def __init__(self, bench: Bench, *, seed: int, faults: int, steps: int) -> None:
        self._bench = bench
        self._random = random.Random(seed)
        self._faults = faults
        self._job = f"{JOB}-{seed}"
        self._diary = bench.folder / f"diary-{seed}"
        engine = "fsdp" if seed % 5 == 4 else "zero"
        self._wishes = () if engine == "fsdp" else ARRANGEMENTS
        self._plain = bench.spec(engine=engine, stage=seed % 4 if engine == "zero" else 3, steps=steps, every_steps=25)
        args = {**self._plain["model"]["args"], "folder": str(self._diary)}
        self._spec = {
            **self._plain,
            "model": {"python": "tests.elastic.diary:with_a_diary", "args": args},
            "hang": {"silence_s": SILENCE_S},
        }
        self._attempts: list[Attempt] = []
        self._desired = 2
        self._nobody_left = False
        # Where nobody is left for the next controller it counts generations anew: from when on, behind how many.
        self._restarts = [(0.0, 0)]
        self._counted_before: list[int] = []
        self._stack = ExitStack()
        self.done: Counter[str] = Counter()

    def run(self) -> History:
        with self._stack:
            self._start()
            for _ in range(self._faults):
                self._settle(self._random.choice((0.0, 0.2, 0.5, 1.0, 2.0, None, None)))
                if self._is_over():
                    break
                self._disturb()
            while not self._is_over():
                self._settle(None)
                self._bench.hurry()
                self._service.wait(lambda: self._service.outcome, what="the end")
            self._attempts[-1].ends("succeeded")
        return self._history()

    @property
    def _service(self) -> Any:
        return self._attempts[-1].service

    def _is_over(self) -> bool:
        """A job whose last worker had to leave is saved and starts again, as the service would have it."""
        outcome = self._service.outcome
        if outcome is not None and outcome.result == "paused":
            counted = self._counted_before[-1] + max(beat.generation for beat in self._service.beats)
            self._restarts.append((time.monotonic(), counted))
            self._start()
        return outcome is not None and outcome.result != "paused"

    def _start(self) -> None:
        """Another controller for the job."""
        self._bench.pace(PACE_S)
        number = len(self._attempts) + 1
        attempt = self._bench.attempt(self._spec, workers=self._desired, job=self._job, number=number)
        before = self._service.arrangement if self._attempts else None
        self._attempts.append(self._stack.enter_context(attempt))
        self._counted_before.append(self._restarts[-1][1])
        self._service.arrangement = before
        self._trains()

    def _trains(self) -> None:
        self._service.wait(
            lambda: self._service.outcome or (self._service.beats and self._service.last.phase == "running"),
            within_s=SETTLES_S,
            what="a job that trains",
        )

    def _settle(self, wait_s: float | None) -> None:
        """Some moment later, or (None) when as many train as are wished."""
        if wait_s is not None:
            time.sleep(wait_s)
        else:
            self._attempts[-1].wait_size(self._desired, within_s=SETTLES_S)
            self._attempts[-1].wait_step(self._service.last.step + 1, within_s=SETTLES_S)

    def _disturb(self) -> None:
        """Draws are the same for a seed whatever happens; where a fault finds nobody, it is no fault."""
        faults: tuple[tuple[Callable[[], bool], int], ...] = (
            (self._scale, 6),
            (self._kill_one, 5),
            (self._kill_two, 2),
            (self._kill_all, 1),
            (self._stop_one, 1),
            (self._give_notice, 2),
            (self._kill_controller, 2),
            (self._send_a_rival, 1),
            (self._kill_meeting_point, 1),
            (self._leave_alone, 1),
            (self._ask_for_a_save, 1),
            (self._rearrange, 2),
        )
        (fault,) = self._random.choices([fault for fault, _ in faults], [weight for _, weight in faults])
        name = fault.__name__.removeprefix("_")
        if fault():
            log.info("step %d: %s", self._service.last.step, name)
            self.done[name] += 1

    # ---- faults: whether there was something to do -----------------------------------------------------------------

    def _scale(self) -> bool:
        self._desired = self._random.randint(1, MOST)
        self._service.workers = self._desired
        return True

    def _kill_one(self) -> bool:
        return self._signal(1, signal.SIGKILL)

    def _kill_two(self) -> bool:
        return self._signal(2, signal.SIGKILL)

    def _kill_all(self) -> bool:
        return self._signal(MOST, signal.SIGKILL)

    def _stop_one(self) -> bool:
        return self._signal(1, signal.SIGSTOP)

    def _give_notice(self) -> bool:
        return self._signal(1, signal.SIGTERM)

    def _kill_controller(self) -> bool:
        """While somebody trains: a new one goes on where it finds them."""
        self._somebody_trains()
        self._attempts[-1].process.kill()
        self._attempts[-1].process.wait()
        self._start()
        return True

    def _send_a_rival(self) -> bool:
        """A second controller while the first lives: the first leaves."""
        self._somebody_trains()
        former = self._attempts[-1]
        self._start()
        return former.process.wait(60) == 0

    def _kill_meeting_point(self) -> bool:
        return self._end(self._bench.pids("ray::Rendezvous"), signal.SIGKILL)

    def _leave_alone(self) -> bool:
        """The service is away for a while."""
        self._service.is_away = True
        time.sleep(self._random.uniform(0.5, 2.0))
        self._service.is_away = False
        return True

    def _ask_for_a_save(self) -> bool:
        self._service.checkpoint_request = f"request-{self._random.random()}"
        return True

    def _rearrange(self) -> bool:
        if self._wishes:
            self._service.arrangement = self._random.choice(self._wishes)
        return bool(self._wishes)

    def _somebody_trains(self) -> None:
        """Somebody who is there to be adopted."""
        if self._nobody_left:
            self._settle(None)
        self._trains()

    def _signal(self, count: int, number: signal.Signals) -> bool:
        members = self._service.pids()
        chosen = self._random.random()
        first = int(chosen * len(members))
        victims = (members[first:] + members[:first])[:count]
        found = self._end(victims, number)
        self._nobody_left = not any(is_alive(pid) for pid in members if pid not in victims)
        return found

    def _end(self, pids: list[int], number: signal.Signals) -> bool:
        """Only processes of this job, which may be gone by now."""
        ours = {*self._bench.pids("ray::Worker"), *self._bench.pids("ray::Rendezvous")}
        found = [pid for pid in pids if pid in ours]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return bool(found)

    # ---- afterwards --------------------------------------------------------------------------------------------------

    def _history(self) -> History:
        points: dict[int, tuple[int, float]] = {}
        generations: list[int] = []
        changes: list[Change] = []
        for before, attempt in zip(self._counted_before, self._attempts, strict=True):
            # A controller that begins knows of none yet.
            generations += [before + beat.generation for beat in attempt.service.beats if beat.generation]
            changes += _changes(attempt, before)
            for sample in (sample for fact in attempt.service.facts for sample in fact.samples or ()):
                if sample.name == "loss" and sample.rank is None:
                    told = (before + sample.generation, sample.value)
                    points[sample.step] = max(points.get(sample.step, (-1, 0.0)), told)
        training = self._plain["training"]
        history = History(
            steps=training["steps"],
            batch_size=training["batch_size"],
            most=MOST,
            lines=[self._counted(line) for line in diary.read(self._diary)],
            changes=changes,
            generations=generations,
            sizes=[len(beat.workers) for attempt in self._attempts for beat in attempt.service.beats],
            curve={step: value for step, (_, value) in points.items()},
            reference=undisturbed(self._plain, self._bench.folder / "cache"),
            left_behind=self._left_behind(),
        )
        shutil.rmtree(self._diary)
        return history

    def _counted(self, line: diary.Line) -> diary.Line:
        before = next(before for since, before in reversed(self._restarts) if line.at >= since)
        return dataclasses.replace(line, generation=before + line.generation)

    def _left_behind(self, within_s: float = 60.0) -> list[str]:
        """Processes and half-written files that are still there so long after the end."""
        processes = [*self._bench.pids("ray::Worker"), *self._bench.pids("ray::Rendezvous")]
        gone(processes, within_s=within_s)
        left = [f"process {pid}" for title in ("ray::Worker", "ray::Rendezvous") for pid in self._bench.pids(title)]
        folders: list[Path] = [self._bench.folder / "checkpoints" / self._job, self._bench.folder / "cache" / "offload"]
        files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
        left += [str(file) for file in files if file.name.endswith(".partial") or "offload" in file.parts]
        return left


def _changes(attempt: Attempt, before: int) -> list[Change]:
    events = attempt.service.events("resized", "rearranged", "recovered")
    recovered = {event.generation for event in events if event.kind == "recovered"}
    return [
        Change(
            generation=before + event.generation,
            planned=event.generation not in recovered,
            redone=event.payload["redone_steps"],
        )
        for event in events
    ]
