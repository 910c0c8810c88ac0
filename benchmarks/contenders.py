"""What trains in a turn: ours, torch's own and DeepSpeed, each with the same model, fused AdamW and clipping."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from service.domain.presets import GptShape
from workers.engine.placement import Placement
from workers.engine.precision import Precision
from workers.engine.units import UnitRule
from workers.engine.zero.engine import ZeroEngine
from workers.models.gpt import Gpt
from workers.optimizers.config import OptimizerConfig
from workers.worker.heap import keep_freed_memory

CPU = torch.device("cpu")
LR, BETAS, EPS, WEIGHT_DECAY, CLIP_NORM = 3e-4, (0.9, 0.95), 1e-8, 0.1, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """gradients: forward and backward of this rank's batch, its loss. update: clip, step, forget the gradients."""

    gradients: Callable[[Tensor], float]
    update: Callable[[], object]
    engine: ZeroEngine | None = None


def build(name: str, shape: GptShape, group: dist.ProcessGroup) -> Contender:
    """Raises KeyError for a name that is not in `BUILDERS`."""
    torch.manual_seed(1)
    return BUILDERS[name](Gpt(shape), group)


def reference(model: Gpt, group: dist.ProcessGroup) -> Contender:
    """One process that has all batches: what the others must agree with."""
    return torchs(model, _adamw(model))


def ddp(model: Gpt, group: dist.ProcessGroup) -> Contender:
    replica = DistributedDataParallel(model, gradient_as_bucket_view=True)
    return torchs(replica, _adamw(replica))


def zero_redundancy(model: Gpt, group: dist.ProcessGroup) -> Contender:
    replica = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(
        replica.parameters(),
        optimizer_class=torch.optim.AdamW,
        lr=LR,
        betas=BETAS,
        eps=EPS,
        weight_decay=WEIGHT_DECAY,
        fused=True,
    )
    return torchs(replica, optimizer)


def fsdp2(*, reshard: bool, offload: bool = False) -> Callable[[Gpt, dist.ProcessGroup], Contender]:
    def build(model: Gpt, group: dist.ProcessGroup) -> Contender:
        sharded = shard(model, reshard=reshard, offload=offload)
        return torchs(sharded, _adamw(sharded))

    return build


def shard(model: Gpt, *, reshard: bool = True, offload: bool = False) -> nn.Module:
    """FSDP2 with a block as its unit."""
    policy: OffloadPolicy = CPUOffloadPolicy(pin_memory=False) if offload else OffloadPolicy()
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=reshard, offload_policy=policy)
    fully_shard(model, reshard_after_forward=reshard, offload_policy=policy)
    return model


def torchs(model: nn.Module, optimizer: torch.optim.Optimizer) -> Contender:
    def gradients(batch_BT: Tensor) -> float:
        loss = model(batch_BT)
        loss.backward()
        return float(loss.detach())

    def update() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad()

    return Contender(gradients=gradients, update=update)


def deepspeed(*, stage: int, offload: str | None = None) -> Callable[[Gpt, dist.ProcessGroup], Contender]:
    """DeepSpeed with its own CPU Adam where it offloads, else torch's fused AdamW, in its defaults otherwise."""

    def build(model: Gpt, group: dist.ProcessGroup) -> Contender:
        library: Any = import_module("deepspeed")
        library.init_distributed(dist_backend="gloo")
        engine, *_ = library.initialize(
            model=model, optimizer=None if offload else _adamw(model), config=_deepspeed_config(stage, offload)
        )

        def gradients(batch_BT: Tensor) -> float:
            loss = engine(batch_BT)
            engine.backward(loss)
            return float(loss.detach())

        return Contender(gradients=gradients, update=engine.step)

    return build


def _deepspeed_config(stage: int, offload: str | None) -> dict[str, Any]:
    adamw = {"lr": LR, "betas": BETAS, "eps": EPS, "weight_decay": WEIGHT_DECAY}
    zero: dict[str, Any] = {"stage": stage}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_clipping": CLIP_NORM,
        "steps_per_print": 10**9,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": zero,
    }
    if offload:
        config["optimizer"] = {"type": "AdamW", "params": adamw}
        zero["offload_optimizer"] = {"device": offload}
    return config


def ours(
    *, stage: int, offload: str = "none", deterministic: bool = False
) -> Callable[[Gpt, dist.ProcessGroup], Contender]:
    """With `offload` the optimizer's state, and at stage 3 the parameters too, rest on that tier."""

    def build(model: Gpt, group: dist.ProcessGroup) -> Contender:
        keep_freed_memory()  # as a worker of the service does
        engine = ZeroEngine(
            model,
            group,
            stage=stage,
            precision=Precision(),
            optimizer=OptimizerConfig(lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY),
            clip_norm=CLIP_NORM,
            units=UnitRule(),
            device=CPU,
            placement=Placement.of(
                CPU,
                optimizer=offload,
                params=offload if stage == 3 else "none",
                folder=Path(tempfile.gettempdir()),
            ),
            deterministic=deterministic,
        )
        share = 1 / group.size()
        return Contender(
            gradients=lambda batch_BT: float(engine.micro_step(batch_BT, weight=share, last=True)),
            update=lambda: engine.step(lr_scale=1.0),
            engine=engine,
        )

    return build


def _adamw(model: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY, fused=True)


BUILDERS: dict[str, Callable[[Gpt, dist.ProcessGroup], Contender]] = {
    "reference": reference,
    "ddp": ddp,
    "zero-redundancy": zero_redundancy,
    "fsdp2-kept": fsdp2(reshard=False),
    "fsdp2-resharded": fsdp2(reshard=True),
    "fsdp2-cpu": fsdp2(reshard=True, offload=True),
    "deepspeed-1": deepspeed(stage=1),
    "deepspeed-2": deepspeed(stage=2),
    "deepspeed-3": deepspeed(stage=3),
    "deepspeed-3-cpu": deepspeed(stage=3, offload="cpu"),
    **{f"zero-{stage}": ours(stage=stage) for stage in range(4)},
    **{f"zero-{stage}-deterministic": ours(stage=stage, deterministic=True) for stage in range(4)},
    "zero-2-cpu": ours(stage=2, offload="cpu"),
    "zero-3-cpu": ours(stage=3, offload="cpu"),
    "zero-3-nvme": ours(stage=3, offload="nvme"),
}
