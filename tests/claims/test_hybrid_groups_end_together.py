"""Claim: an abort frees a rank from the groups that FSDP2 made of some of the ranks, whoever hangs in them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from tests.claims.ranks import on_ranks
from tests.claims.training import fsdp_engine, gpt, train_step
from workers.engine.protocol import Engine
from workers.worker.messages import StoreAddress
from workers.worker.process_group import GroupOwner, is_group_error

HANGING = 3
PATIENCE_S = 20.0


def _owner(rank: int, folder: Path) -> tuple[GroupOwner, TCPStore | None]:
    """Rank 0 keeps the store, as the controller's rendezvous does."""
    dist.destroy_process_group()
    server, at = None, folder / "port"
    if rank == 0:
        server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
        (folder / "port.part").write_text(str(server.port))
        (folder / "port.part").rename(at)
    _until(at.exists)
    owner = GroupOwner(torch.device("cpu"))
    owner.meet(1, StoreAddress(host="127.0.0.1", port=int(at.read_text())))
    return owner, server


def _until(happened: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not happened() and time.monotonic() - began < 2 * PATIENCE_S:
        time.sleep(0.02)


def _until_all(folder: Path, name: str, *, rank: int, world: int) -> None:
    (folder / f"{name}-{rank}").touch()
    _until(lambda: len([*folder.glob(f"{name}-*")]) == world)


def _hang(rank: int, world: int, place: str) -> bool:
    folder = Path(place)
    owner, server = _owner(rank, folder)
    owner.form(rank=rank, world_size=world)
    model = gpt()
    with owner.including_new_groups():
        engine = fsdp_engine(model, owner.group, stage=3, shard_size=2)
    train_step(engine, 1, rank=rank, world=world)
    if rank == HANGING:
        model.blocks[1].register_forward_pre_hook(lambda *_: _wait_for_the_others(folder, world))
    freed: list[bool] = []
    training = threading.Thread(target=_train, args=(engine, rank, world, freed), daemon=True)
    training.start()
    training.join(2.0)
    assert training.is_alive(), f"rank {rank} did not wait for the one that hangs: {freed}"
    # The first that leaves its groups frees its peers with it: nobody leaves before all were seen to wait.
    _until_all(folder, "waits", rank=rank, world=world)
    if rank != HANGING:
        owner.void(1)
        training.join(PATIENCE_S)
    # While the one that hangs still does: it goes on when all have been seen here.
    in_time = freed == [True]
    _until_all(folder, "left", rank=rank, world=world)
    training.join(PATIENCE_S)
    del engine, server
    owner.destroy()
    return in_time


def _train(engine: Engine, rank: int, world: int, freed: list[bool]) -> None:
    try:
        train_step(engine, 2, rank=rank, world=world)
    except BaseException as error:
        freed.append(is_group_error(error))


def _wait_for_the_others(folder: Path, world: int) -> None:
    _until(lambda: len([*folder.glob("left-*")]) == world)


def test_an_abort_reaches_the_groups_of_some_of_the_ranks(tmp_path: Path) -> None:
    *others, _ = on_ranks(4, _hang, str(tmp_path))
    assert others == [True] * 3
