"""What the claims train: a GPT, its batches as pure functions of the step, and plain torch as the reference."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from service.domain.batching import rounds, share
from service.domain.presets import GptShape
from workers.engine.fsdp2.engine import Fsdp2Engine
from workers.engine.precision import Precision
from workers.engine.protocol import Engine
from workers.engine.units import UnitRule
from workers.engine.zero.engine import ZeroEngine
from workers.models.gpt import Gpt
from workers.optimizers.config import OptimizerConfig

SHAPE = GptShape(vocab=61, context=16, width=32, heads=4, layers=3)
MICRO_BATCHES = 5
CLIP_NORM = 0.5
Curve = list[tuple[float, float]]
OPTIMIZER = OptimizerConfig(lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)


def gpt(seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return Gpt(SHAPE)


def batch(step: int, micro: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * step + micro)
    return torch.randint(SHAPE.vocab, (2, SHAPE.context + 1), generator=generator)


def zero_engine(model: nn.Module, group: dist.ProcessGroup, *, stage: int, **options: object) -> ZeroEngine:
    settings: dict[str, object] = {
        "precision": Precision(),
        "optimizer": OPTIMIZER,
        "clip_norm": CLIP_NORM,
        "units": UnitRule(),
        "device": torch.device("cpu"),
    }
    return ZeroEngine(model, group, stage=stage, **(settings | options))  # type: ignore[arg-type]


def fsdp_engine(model: nn.Module, group: dist.ProcessGroup, *, stage: int, **options: object) -> Fsdp2Engine:
    settings: dict[str, object] = {
        "precision": Precision(),
        "optimizer": OPTIMIZER,
        "clip_norm": CLIP_NORM,
        "units": UnitRule(),
        "device": torch.device("cpu"),
    }
    return Fsdp2Engine(model, group, stage=stage, **(settings | options))  # type: ignore[arg-type]


def train_step(
    engine: Engine, step: int, *, rank: int, world: int, count: int = MICRO_BATCHES, dealt: bool = False
) -> tuple[float, float]:
    """One step on this rank's share of `count` micro-batches; (global loss, gradient norm)."""
    mine = share(count, world_size=world, dealt=dealt)[rank]
    losses, calls = [0.0] * count, rounds(count, world_size=world)
    for call in range(calls):
        last = call == calls - 1
        if call < len(mine):
            losses[mine[call]] = engine.micro_step(batch(step, mine[call]), weight=1 / count, last=last).item() / count
        else:
            engine.micro_step(batch(step, 0), weight=0.0, last=last)
    outcome = engine.step(lr_scale=lr_scale(step), tally=losses)
    assert not outcome.skipped
    return sum(outcome.tally), outcome.grad_norm


def lr_scale(step: int) -> float:
    return min(1.0, step / 5)


def plain_curve(model: nn.Module, steps: int, *, count: int = MICRO_BATCHES) -> list[tuple[float, float]]:
    """The same global batches in one process of plain torch: AdamW and clip_grad_norm_."""
    config = OPTIMIZER
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.lr, betas=config.betas, eps=config.eps, weight_decay=config.weight_decay
    )
    curve = []
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = torch.stack([model(batch(step, micro)) for micro in range(count)]).mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.param_groups[0]["lr"] = config.lr * lr_scale(step)
        optimizer.step()
        curve.append((loss.item(), norm.item()))
    return curve
