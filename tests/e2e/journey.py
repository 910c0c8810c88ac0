"""A user's view of one service: submit, wait until, read. Every wait has a deadline and says what it saw last."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from api.client import ENDED, ElastaneClient

Json = dict[str, Any]
Curve = dict[int, float]

# Constant schedule: the first n steps of a longer run are the shorter run.
SPEC: Json = {
    "model": {"name": "gpt", "layers": 2, "width": 64, "heads": 4, "vocab": 256, "context": 64},
    "data": "stdlib",
    "precision": "fp32",
    "training": {
        "steps": 30,
        "batch_size": 12,
        "micro_batch_size": 2,
        "seq_len": 64,
        "seed": 7,
        "optimizer": {"name": "adamw", "lr": 1.0e-3},
        "schedule": {"name": "constant", "warmup_steps": 10},
    },
    "checkpoint": {"every_steps": 50, "keep_last": 2},
}


def spec(*, steps: int, **over: Any) -> Json:
    return {**SPEC, "training": {**SPEC["training"], "steps": steps}, **over}


def wait_until(
    client: ElastaneClient, job_id: str, what: str, holds: Callable[[Json], bool], *, timeout_s: float = 90.0
) -> Json:
    """The job as soon as `holds` of it; an assertion with its last state where it ended or time ran out first."""
    deadline = time.monotonic() + timeout_s
    while True:
        job = client.job(job_id)
        if holds(job):
            return job
        seen = f"{what}: {job['state']} at step {job['step']}, workers {job['workers']}: {job['reason']}"
        assert job["state"] not in ENDED, f"ended before {seen}"
        assert time.monotonic() < deadline, f"after {timeout_s:.0f} s still not {seen}"
        time.sleep(0.1)


def wait_for_step(client: ElastaneClient, job_id: str, step: int) -> Json:
    return wait_until(client, job_id, f"step {step}", lambda job: job["step"] >= step)


def wait_for_workers(client: ElastaneClient, job_id: str, workers: int) -> Json:
    def settled(job: Json) -> bool:
        return bool(job["state"] == "running" and job["workers"]["actual"] == workers)

    return wait_until(client, job_id, f"running on {workers} workers", settled)


def wait_for_end(client: ElastaneClient, job_id: str, *, timeout_s: float = 120.0) -> Json:
    """The job, which must have succeeded."""
    job = wait_until(client, job_id, "the end", lambda job: job["state"] in ENDED, timeout_s=timeout_s)
    assert job["state"] == "succeeded", f"{job['state']}: {job['reason']}"
    return job


def run(client: ElastaneClient, document: Json) -> Json:
    return wait_for_end(client, client.submit(document)["id"])


def events(client: ElastaneClient, job_id: str, kind: str) -> list[Json]:
    return [event for event in client.events(job_id, limit=1000)["items"] if event["kind"] == kind]


def curve(client: ElastaneClient, job_id: str) -> Curve:
    """step -> loss; the group's series is one, and every step is in it."""
    series = client.metrics(job_id, names="loss", points=100_000)["series"]
    assert len(series) == 1, [one["name"] for one in series]
    return {point["step"]: point["value"] for point in series[0]["points"]}


def assert_same_curve(found: Curve, reference: Curve, *, steps: int) -> None:
    """Every step is there, and the losses agree: 1e-5 over the first 50 steps, 2e-3 over all.

    Sums in another order differ in the last bit, and training amplifies that; a lost or doubled batch differs by 1e-2.
    """
    assert sorted(found) == list(range(1, steps + 1))
    apart = {step: abs(loss - reference[step]) / abs(reference[step]) for step, loss in found.items()}
    near = max(value for step, value in apart.items() if step <= 50)
    assert near <= 1e-5, f"{near:.1e} apart within 50 steps"
    assert max(apart.values()) <= 2e-3, f"{max(apart.values()):.1e} apart at step {max(apart, key=apart.__getitem__)}"
