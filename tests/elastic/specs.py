"""Specs of the elastic tests: small models with a pause in each forward."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def paced(
    *,
    stage: int,
    steps: int,
    pace_file: Path,
    every_steps: int = 100_000,
    broken: int | None = None,
    engine: str = "zero",
) -> dict[str, Any]:
    """Six micro-batches a step: with two workers a step takes three pauses."""
    return {
        "model": {"python": "tests.elastic.user_code:paced", "args": {"pace_file": str(pace_file)}},
        "data": {"python": "tests.elastic.user_code:counting", "args": {"broken": broken}},
        "engine": engine,
        "stage": stage,
        "precision": "fp32",
        "workers": {"min": 1, "max": 4},
        "training": {"steps": steps, "batch_size": 12, "micro_batch_size": 2, "seed": 7},
        "checkpoint": {"every_steps": every_steps, "keep_last": 2},
    }
