"""A claim runs on real ranks: processes with gloo on a file store.

They are forked from a server that has imported torch and has done nothing else, so a rank starts in milliseconds.
"""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Collection
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TIMEOUT = timedelta(seconds=60)

CONTEXT = mp.get_context("forkserver")
ENGINES = ["workers.engine.zero.engine", "workers.engine.fsdp2.engine"]
CONTEXT.set_forkserver_preload(["torch", "torch.distributed", *ENGINES, "workers.models.gpt"])


def on_ranks(world: int, claim: Callable[..., Any], *args: Any, doomed: Collection[int] = ()) -> list[Any]:
    """`claim(rank, world, *args)` in `world` processes, each in a default group; what each returned, by rank.

    doomed: ranks that the claim kills; they return None.
    """
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            CONTEXT.Process(target=_run, args=(rank, world, folder, claim, args), daemon=True) for rank in range(world)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        errors = {path.name: path.read_text() for path in sorted(Path(folder).glob("*.error"))}
        assert not errors, "\n".join(f"{name}\n{error}" for name, error in errors.items())
        codes = {rank: process.exitcode for rank, process in enumerate(processes) if rank not in doomed}
        assert set(codes.values()) <= {0}, f"exit codes by rank: {codes}"
        return [
            torch.load(Path(folder) / f"{rank}.pt", weights_only=False) if rank not in doomed else None
            for rank in range(world)
        ]


def join(folder: Path, name: str, *, rank: int, world: int) -> None:
    """Enter a default group that meets at a file. None is in before all are: one that left at once would look dead to
    another that still connects."""
    store = dist.FileStore(str(folder / name), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=TIMEOUT)
    dist.barrier()


def world_group() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


def _run(rank: int, world: int, folder: str, claim: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    try:
        join(Path(folder), "store", rank=rank, world=world)
        torch.save(claim(rank, world, *args), Path(folder) / f"{rank}.pt")
    except BaseException:
        (Path(folder) / f"rank-{rank}.error").write_text(traceback.format_exc())
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
