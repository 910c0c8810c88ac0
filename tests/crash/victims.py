"""Forks the ranks of a job that saves step after step until it is killed; told by lines of JSON on standard input.

Imports once, so that a kill costs no start of Python. Every line it or a child prints is one word and a number.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

import torch

from tests.fakes.memory_engine import MemoryEngine
from tests.unit.layout.shards import flat
from workers.checkpoint import saving
from workers.checkpoint.courier import StoreCourier
from workers.checkpoint.parts import parts_of
from workers.checkpoint.retention import Retention
from workers.checkpoint.saving import Published, Ticket
from workers.checkpoint.snapshot import SnapshotMemory
from workers.checkpoint.store import open_store
from workers.checkpoint.watch import Watch
from workers.engine.states import TensorMeta

JOB = "crash"
METAS = {
    "table": TensorMeta(shape=(301, 401), dtype="float32"),
    "block": TensorMeta(shape=(127, 256), dtype="float32"),
    "bias": TensorMeta(shape=(13,), dtype="float32"),
}


def engine_of(rank: int, world_size: int, *, step: int) -> MemoryEngine:
    """The state of a step, a pure function of it: whoever reads it later knows what must be there."""
    engine = MemoryEngine(METAS, rule=flat, rank=rank, world_size=world_size)
    engine.fill(step)
    engine.load_scalars({"steps": {"table": step}})
    return engine


def say(word: str, number: int) -> None:
    os.write(1, f"{word} {number}\n".encode())


class Baton:
    """One save is in flight at a time: rank 0 tells the others when it has published."""

    def __init__(self, world_size: int) -> None:
        self._ends = [os.pipe() for _ in range(world_size)]

    def published(self) -> None:
        for _, sender in self._ends:
            os.write(sender, b".")

    def await_published(self, rank: int) -> None:
        os.read(self._ends[rank][0], 1)

    def close(self) -> None:
        for ends in self._ends:
            for end in ends:
                os.close(end)


def save_for_ever(order: dict[str, Any], rank: int, baton: Baton) -> None:
    store, world_size, memory = open_store(order["store"]), order["world_size"], SnapshotMemory()
    step = order["after"]
    while True:
        step += 1
        if rank == 0:
            say("started", step)
        ticket = Ticket(
            job=JOB,
            step=step,
            attempt=order["attempt"],
            rank=rank,
            world_size=world_size,
            samples=step,
            spec_digest="",
            scalars={"steps": {"table": step}},
            extra={},
            retention=Retention(keep_last=order["keep_last"]),
        )
        courier = StoreCourier(
            store,
            job=JOB,
            step=step,
            generation=1,
            rank=rank,
            world_size=world_size,
            patience_s=60.0,
            look_every_s=0.01,
        )
        parts = memory.capture(parts_of(engine_of(rank, world_size, step=step), rank=rank))
        outcome = saving.save(store, ticket, parts, courier, Watch(step))
        if rank == 0:
            assert isinstance(outcome, Published), outcome
            say("published", step)
            baton.published()
        baton.await_published(rank)


def born(order: dict[str, Any], rank: int, baton: Baton) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        save_for_ever(order, rank, baton)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def main() -> None:
    torch.set_num_threads(1)
    say("ready", os.getpid())
    for line in sys.stdin:
        order = json.loads(line)
        baton = Baton(order["world_size"])
        children = [born(order, rank, baton) for rank in range(order["world_size"])]
        for pid in children:
            say("child", pid)
        deaths = [os.waitpid(pid, 0)[1] for pid in children]
        baton.close()
        # Nobody was to end by itself: an exit status that is no signal is a defect of the save.
        say("ended", sum(not os.WIFSIGNALED(death) for death in deaths))


if __name__ == "__main__":
    main()
