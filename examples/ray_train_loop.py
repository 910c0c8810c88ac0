"""The engines as a library, without the service: inside a plain Ray Train `TorchTrainer`, two workers on CPU.

Run it from the project's root: `.venv/bin/python -m examples.ray_train_loop`, or with `--engine fsdp2`, or with
`--engine zero fsdp2` to see both learn the same.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import ray
import ray.train
import torch
import torch.distributed as dist
from ray.train.torch import TorchTrainer

from service.domain.presets import GptShape
from workers.engine.fsdp2.engine import Fsdp2Engine
from workers.engine.precision import Precision
from workers.engine.units import UnitRule
from workers.engine.zero.engine import ZeroEngine
from workers.models.gpt import Gpt
from workers.optimizers.config import OptimizerConfig

ENGINES = {"zero": ZeroEngine, "fsdp2": Fsdp2Engine}
SHAPE = GptShape(layers=2, width=64, heads=4, vocab=256, context=64)


def train_on_this_worker(config: dict[str, Any]) -> None:
    """Ray Train has made the process group; the engine asks for no more than that."""
    torch.manual_seed(1)
    group = dist.group.WORLD
    assert group is not None
    engine = ENGINES[config["engine"]](
        Gpt(SHAPE),
        group,
        stage=config["stage"],
        precision=Precision(),
        optimizer=OptimizerConfig(lr=1e-3),
        clip_norm=1.0,
        units=UnitRule(),
        device=torch.device("cpu"),
    )
    world = group.size()
    for step in range(config["steps"]):
        generator = torch.Generator().manual_seed(step * world + group.rank())
        start_B1 = torch.randint(SHAPE.vocab, (8, 1), generator=generator)
        count_BT = (start_B1 + torch.arange(SHAPE.context + 1)) % SHAPE.vocab
        loss = engine.micro_step(count_BT, weight=1 / world, last=True)
        outcome = engine.step(lr_scale=1.0, tally=[float(loss) / world])
        if group.rank() == 0 and step % 20 == 19:
            said = f"loss {outcome.tally[0]:.3f}, gradient norm {outcome.grad_norm:.3f}"
            print(f"{config['engine']}, step {step + 1}: {said}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=list(ENGINES), nargs="+", default=["zero"], help="one after the other")
    parser.add_argument("--stage", type=int, default=2)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="el-") as folder:
        ray.init(num_cpus=2, include_dashboard=False, _temp_dir=f"{folder}/ray")
        try:
            for engine in chosen.engine:
                trainer = TorchTrainer(
                    train_on_this_worker,
                    train_loop_config={"engine": engine, "stage": chosen.stage, "steps": 60},
                    scaling_config=ray.train.ScalingConfig(num_workers=2),
                    run_config=ray.train.RunConfig(storage_path=f"{folder}/results"),
                )
                trainer.fit()
        finally:
            ray.shutdown()


if __name__ == "__main__":
    main()
