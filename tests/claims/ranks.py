"""A claim runs on real ranks: processes with gloo on a file store. Starting them takes seconds: ask much of each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TIMEOUT = timedelta(seconds=30)


def on_ranks(world: int, claim: Callable[..., Any], *args: Any) -> list[Any]:
    """`claim(rank, world, *args)` in `world` processes, each in a default group; what each returned, by rank."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_run, args=(world, folder, claim, args), nprocs=world)
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(world)]


def _run(rank: int, world: int, folder: str, claim: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder) / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=TIMEOUT)
    try:
        torch.save(claim(rank, world, *args), Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()


def world_group() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group
