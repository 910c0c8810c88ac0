"""The training loop that the peers run: DDP with a checkpoint every few steps, as their guides show it.

Rank 0 appends one line per finished step to a log, `{"at", "step", "world", "pids"}`; pauses are read from it.
Under torchrun: `python -m benchmarks.elastic_peer FOLDER`; Ray Train calls `train` on each worker.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from service.domain.presets import PRESETS
from workers.models.gpt import Gpt

MODEL = "gpt-small"
BATCH, SEQ_LEN = 12, 64
SAVE_EVERY = 5


def train(folder: Path) -> None:
    """Until the file `stop` is there."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    shape = PRESETS[MODEL]
    model = DistributedDataParallel(Gpt(shape))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    rank, world = dist.get_rank(), dist.get_world_size()
    pids: list[Any] = [None] * world
    dist.all_gather_object(pids, os.getpid())
    step = _resume(folder, model, optimizer)
    while not _agreed_to_stop(folder):
        step += 1
        loss = model(_batch(shape.vocab, step=step, rank=rank, world=world))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            with (folder / "steps.jsonl").open("a") as log:
                log.write(json.dumps({"at": time.time(), "step": step, "world": world, "pids": pids}) + "\n")
            if step % SAVE_EVERY == 0:
                _save(folder, step, model, optimizer)


def _batch(vocab: int, *, step: int, rank: int, world: int) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.randint(vocab, (BATCH, SEQ_LEN + 1), generator=generator)[rank::world]


def _agreed_to_stop(folder: Path) -> bool:
    wish = torch.tensor(float((folder / "stop").exists()))
    dist.all_reduce(wish)
    return bool(wish > 0)


def _save(folder: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    torch.save({"step": step, "model": model.state_dict(), "optim": optimizer.state_dict()}, folder / "new.pt")
    (folder / "new.pt").rename(folder / "newest.pt")


def _resume(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    if not (folder / "newest.pt").exists():
        return 0
    state = torch.load(folder / "newest.pt", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optim"])
    return int(state["step"])


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(Path(sys.argv[1]))
