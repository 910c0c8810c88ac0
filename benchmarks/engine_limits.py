"""What the machine can do at most, and how much of it the engine's update gets: memory bandwidth and the bare disk.

AdamW moves 28 bytes per element (parameter, gradient and two moments read; three of them written), so its elements per
second have a limit in the bandwidth that a plain kernel over as many streams reaches. States on a disk are read and
written once in a step; their limit is the disk with O_DIRECT and one process that does nothing else. In turns, medians.
"""

from __future__ import annotations

import argparse
import fcntl
import mmap
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import results
from benchmarks.rounds import Figures, measure, median, ratio
from workers.optimizers.config import OptimizerConfig
from workers.optimizers.elementwise import FlatOptimizer, Operands, Span
from workers.optimizers.kinds import StateKind
from workers.tiers.nvme import NvmeTier
from workers.tiers.protocol import StateKey

ADAMW_BYTES, TRIAD_BYTES, FP32_BYTES = 28, 12, 4
BLOCK_BYTES = 8 << 20
VECTORS = 16


def triad(numel: int) -> Callable[[], float]:
    """STREAM's third kernel (McCalpin 1995): two vectors read, one written."""
    a, b, c = (torch.ones(numel) for _ in range(3))

    def run() -> float:
        torch.add(b, c, alpha=3.0, out=a)
        return float(TRIAD_BYTES * numel)

    return run


def adamw(numel: int) -> Callable[[], float]:
    """The update of one shard as both engines make it: parts of one step number, fused, clipped."""
    optimizer, config = FlatOptimizer(OptimizerConfig()), OptimizerConfig()
    vectors = {kind: torch.zeros(numel) for kind in config.beside_master()}
    operands = Operands(master=torch.ones(numel), grad=torch.ones(numel), beside=vectors)
    hyper = config.hyper("weight", ndim=2)

    def run() -> float:
        span = Span(start=0, stop=numel, step=1, hyper=hyper)
        optimizer.update(operands, [span], lr_scale=1.0, grad_divisor=1.5)
        return float(ADAMW_BYTES * numel)

    return run


def bare_disk(folder: Path, size_bytes: int) -> Callable[[], float]:
    """Writes and reads back, past the page cache where the file system can."""
    handle, name = tempfile.mkstemp(dir=folder)
    os.unlink(name)
    # Anonymous memory begins at a page, as O_DIRECT wants it.
    block = mmap.mmap(-1, BLOCK_BYTES)
    with suppress(OSError):
        fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) | os.O_DIRECT)

    def run() -> float:
        for start in range(0, size_bytes, BLOCK_BYTES):
            os.pwritev(handle, [block], start)
        for start in range(0, size_bytes, BLOCK_BYTES):
            os.preadv(handle, [block], start)
        return 2.0 * size_bytes

    return run


def nvme_tier(folder: Path, size_bytes: int) -> Callable[[], float]:
    """A step's walk: the next vector is read ahead while one is changed and committed."""
    tier = NvmeTier(folder, pinned=False)
    keys = [StateKey(flat, StateKind.MASTER) for flat in range(VECTORS)]
    numel = size_bytes // FP32_BYTES // VECTORS
    for key in keys:
        tier.allocate(key, numel=numel, dtype=torch.float32)

    def run() -> float:
        for key, upcoming in zip(keys, [*keys[1:], None], strict=True):
            if upcoming is not None:
                tier.ahead(upcoming)
            values = tier.fetch(key)
            values[0] += 1
            tier.commit(key, values)
        return 2.0 * FP32_BYTES * numel * VECTORS

    return run


def timed(run: Callable[[], float], *, times: int) -> Figures:
    """The median of some runs, after one that is not counted."""
    run()
    rates = []
    for _ in range(times):
        began = time.perf_counter()
        moved_bytes = run()
        rates.append(moved_bytes / (time.perf_counter() - began))
    return {"bytes_per_s": sorted(rates)[len(rates) // 2]}


def show(found: dict[str, list[Figures]], console: Console) -> None:
    table = Table("what", "GB/s", "of its limit", "spread")
    for name, limit in (("triad", "triad"), ("adamw", "triad"), ("bare disk", "bare disk"), ("nvme tier", "bare disk")):
        share = ratio(found[name], found[limit], "bytes_per_s")
        rate = median(found[name], "bytes_per_s")
        table.add_row(name, f"{rate / 1e9:.2f}", f"{share.median:.2f}", f"{share.low:.2f}-{share.high:.2f}")
    console.print(table)
    elements = median(found["adamw"], "bytes_per_s") / ADAMW_BYTES
    console.print(f"AdamW: {elements / 1e6:.0f} million elements per second and core")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--numel", type=int, default=32 << 20)
    parser.add_argument("--disk-mb", type=int, default=512)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to be measured")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--times", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    settings, console = parse(), Console()
    torch.set_num_threads(1)
    size_bytes = settings.disk_mb << 20
    runs = {
        "triad": triad(settings.numel),
        "adamw": adamw(settings.numel),
        "bare disk": bare_disk(settings.folder, size_bytes),
        "nvme tier": nvme_tier(settings.folder, size_bytes),
    }
    found = measure(list(runs), rounds=settings.rounds, turn=lambda name: timed(runs[name], times=settings.times))
    show(found, console)
    described = {name: str(value) for name, value in vars(settings).items()}
    results.write("engine_limits", settings=described, figures=found)


if __name__ == "__main__":
    main()
