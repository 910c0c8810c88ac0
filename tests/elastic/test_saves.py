"""Saves behind training, in real workers: resizes, deaths, pauses and full disks while one is in flight."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.elastic.cluster import Attempt, Bench
from tests.elastic.reference import largest_difference, undisturbed
from workers.checkpoint import catalogue
from workers.checkpoint.store import LocalStore

# Real processes on a machine that others may use as well.
pytestmark = pytest.mark.timeout(900)


class Gate:
    """While it is closed no worker's disk takes a file: saves stay in flight."""

    def __init__(self, bench: Bench) -> None:
        self.file = bench.folder / "gate"
        self.waiting = self.file.with_suffix(".waiting")

    def close(self) -> None:
        self.waiting.unlink(missing_ok=True)
        self.file.touch()

    def open(self) -> None:
        self.file.unlink(missing_ok=True)

    def in_flight(self, attempt: Attempt) -> int:
        """The step of the save that waits for the gate."""
        attempt.service.wait(lambda: self.waiting.exists() and self.waiting.read_text(), what="a save in flight")
        return int(self.waiting.read_text().split("/")[1].removeprefix("step-"))


def gated(bench: Bench, gate: Gate, **fields: Any) -> dict[str, Any]:
    spec = bench.spec(**fields)
    args = {**spec["model"]["args"], "gate_file": str(gate.file)}
    return {**spec, "model": {"python": "tests.elastic.user_code:with_a_gate", "args": args}}


def far_from_undisturbed(attempt: Attempt, bench: Bench, **fields: Any) -> float:
    curve, spec = attempt.service.curve(), bench.spec(**fields)
    bench.hurry()
    reference = undisturbed(spec, bench.folder / "cache")
    return largest_difference(curve, {step: reference[step] for step in curve})


def published(bench: Bench, job: str) -> list[int]:
    store = LocalStore(bench.folder / "checkpoints")
    return [step for step in catalogue.steps(store, job) if catalogue.is_published(store, job, step)]


def verified(bench: Bench, job: str) -> list[int]:
    """The published ones, of which every byte is what was written."""
    found = published(bench, job)
    for step in found:
        catalogue.inspect(LocalStore(bench.folder / "checkpoints"), job, step, verify_bytes=True)
    return found


def wait_event(attempt: Attempt, kind: str, count: int = 1) -> Any:
    attempt.service.wait(lambda: len(attempt.service.events(kind)) >= count, what=f"{kind} {count}")
    return attempt.service.events(kind)[count - 1]


def saved(attempt: Attempt) -> dict[int, Any]:
    reports = [fact.checkpoint for fact in attempt.service.facts if fact.checkpoint]
    return {report.step: report for report in reports if not report.removed}


def test_a_save_holds_back_no_resize_and_a_pause_waits_for_it(bench: Bench) -> None:
    gate, fields = Gate(bench), {"stage": 3, "steps": 200, "every_steps": 5}
    gate.close()
    with bench.attempt(gated(bench, gate, **fields), workers=2, job="saving") as attempt:
        first = gate.in_flight(attempt)
        attempt.wait_step(first + 7)
        assert wait_event(attempt, "checkpoint_started").step == first
        assert not saved(attempt), "training went on while nothing was written"
        attempt.scale(3)
        assert wait_event(attempt, "resized").payload["redone_steps"] == 0
        assert published(bench, "saving") == []
        gate.open()
        attempt.service.wait(lambda: first in saved(attempt), what="the save of before the resize")
        assert saved(attempt)[first].pause_s < saved(attempt)[first].duration_s
        gate.close()
        second = gate.in_flight(attempt)
        attempt.scale(2)
        wait_event(attempt, "resized", 2)
        gate.open()
        assert wait_event(attempt, "checkpoint_dropped").step == second
        attempt.service.wait(lambda: max(saved(attempt)) > second, what="the save that makes up for it")
        assert second not in saved(attempt)
        gate.close()
        third = gate.in_flight(attempt)
        attempt.service.action = "pause"
        attempt.service.wait(lambda: attempt.service.last.phase == "pausing", what="a pause")
        assert attempt.service.outcome is None
        gate.open()
        attempt.ends("paused")
    assert {third, max(attempt.service.curve())} <= set(saved(attempt)) & set(verified(bench, "saving"))
    assert list((bench.folder / "checkpoints" / "saving").rglob("*.partial")) == []
    assert far_from_undisturbed(attempt, bench, **fields) < 1e-4


def test_a_damaged_checkpoint_is_named_and_a_death_during_a_save_drops_it_whole(bench: Bench) -> None:
    gate, fields = Gate(bench), {"stage": 2, "steps": 150, "every_steps": 5}
    gate.open()
    with bench.attempt(gated(bench, gate, **fields), workers=2, job="dying") as attempt:
        attempt.service.wait(lambda: len(saved(attempt)) > 1, what="two checkpoints")
        attempt.service.action = "pause"
        attempt.ends("paused")
    newest = max(verified(bench, "dying"))
    (file,) = (bench.folder / "checkpoints" / "dying" / f"step-{newest:08d}").glob("rank-00001-*")
    flip_a_byte(file, at=-5)
    gate.close()
    with bench.attempt(gated(bench, gate, **fields), workers=3, job="dying", number=2) as attempt:
        passed_over = wait_event(attempt, "checkpoint_passed_over")
        assert (passed_over.step, passed_over.payload["file"]) == (newest, file.name)
        gate.in_flight(attempt)
        os.kill(attempt.service.pids()[0], signal.SIGKILL)
        wait_event(attempt, "recovered")
        attempt.wait_step(attempt.service.last.step + 3)
        gate.open()
        attempt.service.wait(lambda: saved(attempt), what="a save after the death")
        bench.hurry()
        attempt.ends("succeeded")
    assert min(attempt.service.curve()) <= newest, "it went on from the one before"
    assert max(verified(bench, "dying")) == 150
    assert far_from_undisturbed(attempt, bench, **fields) < 1e-3


def test_a_disk_that_refuses_leaves_the_job_training_and_another_starts_from_what_it_saved(bench: Bench) -> None:
    spec = bench.spec(stage=0, steps=10_000, every_steps=10)
    folder = bench.folder / "checkpoints" / "refused"
    with bench.attempt(spec, workers=1, job="refused") as attempt:
        attempt.service.wait(lambda: saved(attempt), what="a checkpoint")
        folder.rename(folder.with_name("aside"))
        folder.touch()
        failed = wait_event(attempt, "checkpoint_failed")
        assert "Not a directory" in failed.payload["reason"]
        attempt.wait_step(attempt.service.last.step + 5)
        folder.unlink()
        folder.with_name("aside").rename(folder)
        attempt.service.wait(lambda: max(saved(attempt)) > failed.step, what="the next checkpoint")
        attempt.service.action = "pause"
        attempt.ends("paused")
        first = attempt.service.curve()
    from_there = {**bench.spec(stage=3, steps=40), "from": {"uri": str(folder)}}
    bench.hurry()
    with bench.attempt(from_there, workers=2, job="second") as attempt:
        attempt.ends("succeeded")
        second = attempt.service.curve()
        assert attempt.service.events("started_from")[0].payload["from_step"] == max(first)
    assert sorted(second) == list(range(1, 41))
    assert second[1] < first[1] - 1, "what the first one learned is there"


def flip_a_byte(file: Path, *, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(bytes(data))
