from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """This folder alone: without a GPU there is nothing to show."""
    if not torch.cuda.is_available():
        here = Path(__file__).parent
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="torch sees no CUDA device"))


@pytest.fixture(scope="session")
def nccl() -> Iterator[dist.ProcessGroup]:
    """A group of one rank on the first GPU."""
    with tempfile.TemporaryDirectory() as folder:
        device = torch.device("cuda:0")
        dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1, device_id=device)
        group = dist.group.WORLD
        assert group is not None
        yield group
        del group
        dist.destroy_process_group()
