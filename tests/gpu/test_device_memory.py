"""Device memory, as the allocator counts it, against what the engine says it holds."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from service.domain.presets import PRESETS
from workers.engine.precision import Precision
from workers.engine.units import UnitRule
from workers.engine.zero.engine import ZeroEngine
from workers.models.gpt import Gpt
from workers.optimizers.config import OptimizerConfig

SHAPE = PRESETS["gpt-small"]
DEVICE = torch.device("cuda:0")


def engine_of(stage: int, group: dist.ProcessGroup) -> ZeroEngine:
    torch.manual_seed(1)
    return ZeroEngine(
        Gpt(SHAPE),
        group,
        stage=stage,
        precision=Precision(params=torch.bfloat16, reduce=torch.float32),
        optimizer=OptimizerConfig(),
        clip_norm=1.0,
        units=UnitRule(),
        device=DEVICE,
    )


def train(engine: ZeroEngine, *, steps: int) -> list[float]:
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        batch_BT = torch.randint(SHAPE.vocab, (4, 129), generator=generator).to(DEVICE)
        losses.append(float(engine.micro_step(batch_BT, weight=1.0, last=True)))
        assert not engine.step(lr_scale=1.0).skipped
    return losses


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_allocator_holds_what_the_engine_says(stage: int, nccl: dist.ProcessGroup) -> None:
    """Between steps: the state by kind, buckets and buffers; 4 % for the allocator's rounding and the model's odds."""
    before = torch.cuda.memory_allocated()
    engine = engine_of(stage, nccl)
    train(engine, steps=3)
    torch.cuda.synchronize()
    found = engine.footprint()
    said = sum(size for tiers in found.by_kind.values() for size in tiers.values())
    said += found.gathered_bytes + found.buckets_bytes + found.buffers_bytes
    assert said > 12 * SHAPE.numel, "master and moments alone are 12 bytes per parameter on one rank"
    assert torch.cuda.memory_allocated() - before == pytest.approx(said, rel=0.04)


def test_every_stage_trains_alike(nccl: dist.ProcessGroup) -> None:
    curves = [train(engine_of(stage, nccl), steps=5) for stage in range(4)]
    assert curves[0][-1] < curves[0][0] + 0.5
    for curve in curves[1:]:
        assert curve == pytest.approx(curves[0], rel=2e-3)
