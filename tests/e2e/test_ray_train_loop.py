"""The example that takes the engines without the service runs to its end, and both engines train the same model."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from examples.local_service import ROOT
from service.adapters.ray_head import interpreter


def test_a_plain_ray_train_loop_takes_either_engine(tmp_path: Path) -> None:
    run = subprocess.run(
        [interpreter(tmp_path), "-m", "examples.ray_train_loop", "--engine", "zero", "fsdp2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = run.stdout + run.stderr
    assert run.returncode == 0, said[-3000:]
    # Ray shows a worker's lines more than once.
    zero, fsdp2 = (dict(re.findall(rf"{engine}, step (\d+): loss ([\d.]+)", said)) for engine in ("zero", "fsdp2"))
    assert list(zero) == ["20", "40", "60"]
    assert float(zero["60"]) < float(zero["20"]) - 1
    assert fsdp2 == zero
