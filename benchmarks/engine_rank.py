"""One rank of one contender: builds the model, trains a few steps, rank 0 prints its figures as one JSON line.

Called by `engines.py`. Everything that is measured is measured alike for all: the step between two barriers, the
tensors alive between backward and update, the bytes that crossed the loopback interface, the peak of resident memory.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import statistics
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmarks.contenders import BUILDERS, Contender, build
from service.domain.presets import PRESETS, GptShape


def batch(shape: GptShape, *, step: int, rank: int, size: int, seq_len: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(shape.vocab, (size, seq_len + 1), generator=generator)


def peak_rss_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def tensor_bytes() -> int:
    """Of every tensor that Python can reach, and of their gradients, each storage once."""
    alive = [
        each
        for each in gc.get_objects()
        if issubclass(type(each), Tensor) and type(each) is not DTensor and not each.is_meta
    ]
    alive += [each.grad for each in alive if each.is_leaf and each.grad is not None and type(each.grad) is not DTensor]
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in alive}
    return sum(storages.values())


def loopback_bytes() -> int:
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split()[1])


def train(arguments: argparse.Namespace, group: dist.ProcessGroup) -> dict[str, float]:
    shape = PRESETS[arguments.model]
    start_bytes = peak_rss_bytes()
    contender = build(arguments.contender, shape, group)
    # The reference is one process with everybody's batches.
    ranks = range(arguments.shares) if arguments.contender == "reference" else [group.rank()]
    walls, losses, cpu_s, sent, states = [], [], 0.0, 0, 0
    for number in range(arguments.warmup + arguments.steps):
        parts = [
            batch(shape, step=number, rank=rank, size=arguments.batch, seq_len=arguments.seq_len) for rank in ranks
        ]
        inputs = torch.cat(parts)
        dist.barrier(group)
        wire, wall, cpu = loopback_bytes(), time.perf_counter(), time.process_time()
        losses.append(contender.gradients(inputs))
        if number == arguments.warmup - 1:
            # Not a step whose time counts; the first update made the optimizer's state.
            states = tensor_bytes()
        contender.update()
        if number >= arguments.warmup:
            walls.append(time.perf_counter() - wall)
            cpu_s += time.process_time() - cpu
            dist.barrier(group)
            sent += loopback_bytes() - wire
    mean = torch.tensor(losses[-1], dtype=torch.float64)
    dist.all_reduce(mean, group=group)
    return {
        "step_s": statistics.median(walls),
        "cpu_s": cpu_s / arguments.steps,
        "peak_rss_bytes": float(peak_rss_bytes() - start_bytes),
        "loss": float(mean) / group.size(),
        "tensors_bytes": float(states),
        "wire_bytes_per_step": sent / arguments.steps / group.size(),
    } | counted(contender, steps=len(losses))


def counted(contender: Contender, *, steps: int) -> dict[str, float]:
    """What only our engine says of itself."""
    if contender.engine is None:
        return {}
    held = sum(size for tiers in contender.engine.footprint().by_kind.values() for size in tiers.values())
    return {"states_bytes": float(held), "sent_bytes_per_step": contender.engine.traffic().bytes_sent / steps}


def join(arguments: argparse.Namespace) -> dist.ProcessGroup:
    # DeepSpeed reads these even where the group exists.
    os.environ |= {"RANK": str(arguments.rank), "WORLD_SIZE": str(arguments.world), "LOCAL_RANK": str(arguments.rank)}
    dist.init_process_group(
        "gloo",
        init_method=f"file://{arguments.store}",
        rank=arguments.rank,
        world_size=arguments.world,
        timeout=timedelta(seconds=300),
    )
    group = dist.group.WORLD
    assert group is not None
    return group


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contender", choices=list(BUILDERS))
    parser.add_argument("model", choices=list(PRESETS))
    for name in ("rank", "world", "shares", "batch", "seq-len", "warmup", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--store", required=True, help="a file that the ranks of this turn share")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    group = join(arguments)
    figures = train(arguments, group)
    if arguments.rank == 0:
        print(json.dumps(figures), flush=True)
    del group
    dist.destroy_process_group()
    # DeepSpeed's stage 3 leaves threads behind that abort a process which ends the ordinary way.
    os._exit(0)


if __name__ == "__main__":
    main()
