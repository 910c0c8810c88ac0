"""One rank of one contender: builds the model, trains a few steps, rank 0 prints its figures as one JSON line.

Every contender gets the same model, batches, thread count and fused AdamW with clipping. Called by `engines.py`.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from service.domain.presets import PRESETS, GptShape
from workers.engine.optimizer import OptimizerConfig
from workers.engine.precision import Precision
from workers.engine.units import UnitRule
from workers.engine.zero.engine import ZeroEngine
from workers.models.gpt import Gpt

LR, BETAS, WEIGHT_DECAY, CLIP_NORM = 3e-4, (0.9, 0.95), 0.1, 1.0

# Trains on one batch and returns its loss on this rank.
Step = Callable[[Tensor], float]


def peer_step(model: nn.Module) -> Step:
    """torch's own way: backward, clip, fused AdamW. DDP and FSDP2 average the gradients."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True)

    def step(batch_BT: Tensor) -> float:
        loss = model(batch_BT)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss)

    return step


def our_step(engine: ZeroEngine, *, world: int) -> Step:
    def step(batch_BT: Tensor) -> float:
        loss = engine.micro_step(batch_BT, weight=1 / world, last=True)
        engine.step(lr_scale=1.0)
        return float(loss)

    return step


def fsdp2(model: Gpt) -> nn.Module:
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model


def build(contender: str, shape: GptShape, group: dist.ProcessGroup) -> tuple[Step, ZeroEngine | None]:
    torch.manual_seed(1)
    model = Gpt(shape)
    if contender == "ddp":
        return peer_step(DistributedDataParallel(model, gradient_as_bucket_view=True)), None
    if contender == "fsdp2":
        return peer_step(fsdp2(model)), None
    engine = ZeroEngine(
        model,
        group,
        stage=int(contender.removeprefix("zero-")),
        precision=Precision(),
        optimizer=OptimizerConfig(lr=LR, betas=BETAS, weight_decay=WEIGHT_DECAY),
        clip_norm=CLIP_NORM,
        units=UnitRule(),
        device=torch.device("cpu"),
    )
    return our_step(engine, world=group.size()), engine


def batch(shape: GptShape, *, step: int, rank: int, size: int, seq_len: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(shape.vocab, (size, seq_len + 1), generator=generator)


def peak_rss_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def train(arguments: argparse.Namespace, group: dist.ProcessGroup) -> dict[str, float]:
    shape = PRESETS[arguments.model]
    start_bytes = peak_rss_bytes()
    step, engine = build(arguments.contender, shape, group)
    walls, losses, cpu_s = [], [], 0.0
    for number in range(arguments.warmup + arguments.steps):
        inputs = batch(shape, step=number, rank=group.rank(), size=arguments.batch, seq_len=arguments.seq_len)
        dist.barrier(group)
        wall, cpu = time.perf_counter(), time.process_time()
        losses.append(step(inputs))
        if number >= arguments.warmup:
            walls.append(time.perf_counter() - wall)
            cpu_s += time.process_time() - cpu
    figures = {
        "step_s": statistics.median(walls),
        "cpu_s": cpu_s / arguments.steps,
        "peak_rss_bytes": float(peak_rss_bytes() - start_bytes),
        "loss": losses[-1],
    }
    return figures | (_counted(engine, steps=len(losses)) if engine else {})


def _counted(engine: ZeroEngine, *, steps: int) -> dict[str, float]:
    held = sum(size for tiers in engine.footprint().by_kind.values() for size in tiers.values())
    return {"states_bytes": float(held), "sent_bytes_per_step": engine.traffic().bytes_sent / steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contender", choices=["ddp", "fsdp2", *(f"zero-{stage}" for stage in range(4))])
    parser.add_argument("model", choices=list(PRESETS))
    for name in ("rank", "world", "batch", "seq-len", "warmup", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--store", required=True, help="a file that the ranks of this turn share")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{arguments.store}",
        rank=arguments.rank,
        world_size=arguments.world,
        timeout=timedelta(seconds=120),
    )
    group = dist.group.WORLD
    assert group is not None
    figures = train(arguments, group)
    if arguments.rank == 0:
        print(json.dumps(figures), flush=True)
    del group
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
