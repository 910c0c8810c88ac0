"""What one rank of so many gets done in a second on this machine's CPUs, all of them at it together.

The plan's estimates of a step rest on such rates; here they are measured, so that what is compared is the plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
import torch.distributed as dist

from benchmarks.engine_limits import adamw
from service.domain.hardware import Rates
from tests.claims.ranks import world_group
from workers.engine.zero.collectives import Collectives

CPU = torch.device("cpu")
WIDTH, TURNS = 1024, 5
NUMEL = 4 << 20


def surveyed(rank: int, world: int, rows: int) -> Rates:
    """rows: of the matrices that a micro-batch multiplies by weights."""
    memory = rate(adamw(NUMEL))
    return Rates(
        operations=rate(_products(rows)),
        link=rate(_gathering(world)) if world > 1 else float("inf"),
        # Where the device is host memory, what is offloaded there goes nowhere.
        host=float("inf"),
        memory=memory,
        host_memory=memory,
        overlaps=False,
    )


def rate(work: Callable[[], float]) -> float:
    """Of what one call says that it did; the median of some calls that all ranks begin together."""
    work()
    found = []
    for _ in range(TURNS):
        dist.barrier()
        began = time.perf_counter()
        done = work()
        found.append(done / (time.perf_counter() - began))
    return median(found)


def _products(rows: int) -> Callable[[], float]:
    """A layer's forward, and the two products of its backward."""
    x, weight, grad = torch.ones(rows, WIDTH), torch.ones(WIDTH, WIDTH), torch.ones(rows, WIDTH)
    out, into, of_weight = torch.empty(rows, WIDTH), torch.empty(rows, WIDTH), torch.empty(WIDTH, WIDTH)
    repeats = max(1, 2**14 // rows)

    def run() -> float:
        for _ in range(repeats):
            torch.mm(x, weight, out=out)
            torch.mm(grad, weight, out=into)
            torch.mm(x.T, grad, out=of_weight)
        return repeats * 6.0 * rows * WIDTH * WIDTH

    return run


def _gathering(world: int) -> Callable[[], float]:
    """As the engine gathers a unit; bytes that a rank sends."""
    collectives = Collectives(world_group(), CPU)
    shard = torch.ones(NUMEL // world)
    full = torch.empty(shard.numel() * world)

    def run() -> float:
        collectives.gather(full, shard).wait()
        return 4.0 * shard.numel() * (world - 1)

    return run
