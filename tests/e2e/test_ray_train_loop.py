"""The example that takes the engines without the service runs to its end, and both engines train the same model."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from examples.local_service import ROOT
from service.adapters.ray_head import interpreter


def losses(python: str, engine: str) -> list[float]:
    """What the example printed."""
    run = subprocess.run(
        [python, "-m", "examples.ray_train_loop", "--engine", engine],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    # Ray shows a worker's lines more than once.
    shown = dict(re.findall(r"step (\d+): loss ([\d.]+)", run.stdout + run.stderr))
    return [float(loss) for loss in shown.values()]


def test_a_plain_ray_train_loop_takes_either_engine(tmp_path: Path) -> None:
    python = interpreter(tmp_path)
    zero = losses(python, "zero")
    assert len(zero) == 3
    assert zero[-1] < zero[0] - 1
    assert losses(python, "fsdp2") == zero
