"""One Ray for all of these tests: it takes longer to start than most of them to run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.elastic.cluster import Bench, ray_head

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="package")
def bench() -> Iterator[Bench]:
    torch.set_num_threads(1)
    os.environ["PYTHONPATH"] = str(ROOT)
    # Ray's sockets need short paths.
    with tempfile.TemporaryDirectory(prefix="el-", dir="/tmp") as folder, ray_head(Path(folder, "ray")) as address:
        yield Bench(address, Path(folder))
