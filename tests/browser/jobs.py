"""Jobs small enough for a test and long enough to be looked at, and what a chart of theirs says of itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page

from api.client import ElastaneClient


def spec(name: str, *, steps: int = 3000, workers: int = 2, most: int = 3) -> dict[str, Any]:
    return {
        "name": name,
        "model": {"name": "gpt", "layers": 1, "width": 32, "heads": 2, "vocab": 256, "context": 64},
        "stage": 2,
        "precision": "fp32",
        "workers": {"min": workers, "max": most},
        "training": {"steps": steps, "batch_size": 6, "micro_batch_size": 1, "seq_len": 64, "optimizer": {"lr": 3e-3}},
        "checkpoint": {"every_steps": 200, "keep_last": 2},
    }


def wait_for(said: Callable[[], bool], *, what: str, timeout_s: float = 90.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not said():
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s} s"
        time.sleep(0.2)


def wait_for_step(client: ElastaneClient, job_id: str, step: int) -> None:
    wait_for(lambda: client.job(job_id)["step"] >= step, what=f"step {step} of job {job_id}")


def chart(page: Page, title: str) -> dict[str, str]:
    """What the figure says: points, the steps they cover, the last step, markers."""
    figure = page.locator(f'figure[data-chart="{title}"]')
    found: dict[str, str] = figure.evaluate("figure => ({...figure.dataset})")
    return found


def wait_for_point(page: Page, title: str, step: int, *, timeout_s: float = 90.0) -> dict[str, str]:
    """What the figure says once it shows this step and the history before it.

    Asked from outside: the page's policy forbids the browser's own waiting, which is code as text.
    """
    deadline = time.monotonic() + timeout_s
    while not (_last(said := chart(page, title)) >= step and int(said.get("covered", "0")) >= _last(said)):
        assert time.monotonic() < deadline, f"{title} says {said}, not step {step} and all before, after {timeout_s} s"
        page.wait_for_timeout(150)
    return said


def _last(said: dict[str, str]) -> int:
    return int(said.get("last", "-1"))
