"""One rank that saves or loads the state of one contender; rank 0 prints the group's figures as one JSON line.

Both train one step first, so that every moment exists and is not a page of zeros. Times are from a barrier to the last
rank's end; memory is the largest rank's peak above what it held before. Called by `checkpoints.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import async_save as dcp_async_save
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from benchmarks.contenders import BETAS, CLIP_NORM, LR, WEIGHT_DECAY, shard
from benchmarks.engine_rank import batch
from service.domain.presets import PRESETS
from workers.checkpoint import catalogue, saving
from workers.checkpoint.background import BackgroundSaver
from workers.checkpoint.parts import parts_of
from workers.checkpoint.reader import read_into
from workers.checkpoint.saving import Published, Ticket
from workers.checkpoint.snapshot import Snapshot, SnapshotMemory
from workers.checkpoint.store import LocalStore
from workers.checkpoint.watch import Watch
from workers.engine.precision import Precision
from workers.engine.units import UnitRule
from workers.engine.zero.engine import ZeroEngine
from workers.models.gpt import Gpt
from workers.optimizers.config import OptimizerConfig

JOB = "bench"
SYNC, ASYNC = 1, (2, 3)
PATIENCE_S = 300.0
SEQ_LEN, PLAIN_STEPS = 128, 3

Figures = dict[str, float]


class Memory:
    """The process's resident size, and its peak since `__enter__` (Linux: `clear_refs` sets the mark back)."""

    def __enter__(self) -> Memory:
        Path("/proc/self/clear_refs").write_text("5")
        self._before = _status_bytes("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.above_bytes = max(0, _status_bytes("VmHWM") - self._before)


class GroupCourier:
    """Reports over the group's store, as a worker's own save at once sends them."""

    def __init__(self, step: int) -> None:
        self._store = distributed_c10d._get_default_store()
        self._key = f"report/{step}"

    def send(self, text: str) -> None:
        self._store.set(f"{self._key}/{dist.get_rank()}", text)

    def arrived(self) -> Sequence[str] | None:
        keys = [f"{self._key}/{rank}" for rank in range(1, dist.get_world_size())]
        return [self._store.get(key).decode() for key in keys] if not keys or self._store.check(keys) else None


class Ours:
    """ZeRO stage 3: everything sharded, as FSDP2 has it."""

    def __init__(self, model: Gpt, folder: Path) -> None:
        group = dist.group.WORLD
        assert group is not None
        self.engine = ZeroEngine(
            model,
            group,
            stage=3,
            precision=Precision(),
            optimizer=OptimizerConfig(lr=LR, betas=BETAS, weight_decay=WEIGHT_DECAY),
            clip_norm=CLIP_NORM,
            units=UnitRule(),
            device=torch.device("cpu"),
        )
        self._snapshot: Snapshot | None = None
        self._store = LocalStore(folder)
        self._rank, self._world = group.rank(), group.size()
        self._memory, self._saver = SnapshotMemory(), BackgroundSaver()

    def gradients(self, batch_BT: Tensor) -> None:
        self.engine.micro_step(batch_BT, weight=1 / self._world, last=True)

    def hold(self) -> None:
        """The copy is made while gradients are computed; the update waits for it."""
        if self._snapshot is not None:
            self._snapshot.wait()

    def update(self) -> None:
        self.engine.step(lr_scale=1.0)

    def save(self, number: int) -> None:
        self._save(number, parts_of(self.engine, rank=self._rank), Watch(number))

    def save_behind(self, number: int) -> Callable[[], object]:
        snapshot = self._snapshot = self._memory.begin(parts_of(self.engine, rank=self._rank))
        self._saver.start(number, lambda watch: self._save(number, snapshot.take(), watch))
        return lambda: self._saver.settle(PATIENCE_S)

    def load(self, number: int) -> None:
        manifest = catalogue.inspect(self._store, JOB, number)
        read_into(self.engine, rank=self._rank, manifest=manifest, store=self._store)
        self.engine.commit_load()

    def _save(self, number: int, parts: Sequence[Any], watch: Watch) -> None:
        ticket = Ticket(
            job=JOB,
            step=number,
            attempt=1,
            rank=self._rank,
            world_size=self._world,
            samples=0,
            spec_digest="",
            scalars=self.engine.scalars(),
            extra={},
        )
        outcome = saving.save(self._store, ticket, parts, GroupCourier(number), watch)
        assert outcome is None or isinstance(outcome, Published), outcome


class Dcp:
    """FSDP2 and torch's distributed checkpoint, in its defaults."""

    def __init__(self, model: Gpt, folder: Path) -> None:
        self._model: nn.Module = shard(model)
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(), lr=LR, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
        )
        self._folder = folder
        # Its thread makes collectives: on training's own group they would meet training's.
        self._group_behind = dist.new_group(backend="gloo")

    def gradients(self, batch_BT: Tensor) -> None:
        self._model(batch_BT).backward()

    def hold(self) -> None:
        """Its copy was made in the call."""

    def update(self) -> None:
        self._optimizer.step()
        self._optimizer.zero_grad()

    def save(self, number: int) -> None:
        dcp_save(self._state(), checkpoint_id=self._folder / str(number))

    def save_behind(self, number: int) -> Callable[[], object]:
        future: Any = dcp_async_save(
            self._state(), checkpoint_id=self._folder / str(number), process_group=self._group_behind
        )
        return lambda: future.result()

    def load(self, number: int) -> None:
        """In place; what `set_state_dict` does after it is not counted."""
        dcp_load(self._state(), checkpoint_id=self._folder / str(number))

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self._model, self._optimizer)
        return {"model": model, "optim": optimizer}


class TorchSave:
    """One process with all of it and one file: what a script without any of this does."""

    def __init__(self, model: Gpt, folder: Path) -> None:
        self._model = model
        self._optimizer = torch.optim.AdamW(
            model.parameters(), lr=LR, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
        )
        self._folder = folder

    def gradients(self, batch_BT: Tensor) -> None:
        self._model(batch_BT).backward()

    def update(self) -> None:
        self._optimizer.step()

    def save(self, number: int) -> None:
        state = {"model": self._model.state_dict(), "optim": self._optimizer.state_dict()}
        with (self._folder / f"{number}.pt").open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())

    def load(self, number: int) -> None:
        state = torch.load(self._folder / f"{number}.pt", weights_only=True)
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optim"])


Contender = Ours | Dcp | TorchSave
CONTENDERS: dict[str, type[Contender]] = {"ours": Ours, "dcp": Dcp, "torch-save": TorchSave}


def timed(name: str, act: Callable[[], object]) -> Figures:
    dist.barrier()
    with Memory() as memory:
        began = time.perf_counter()
        act()
        mine_s = time.perf_counter() - began
        dist.barrier()
    return {f"{name}_s": mine_s, f"{name}_peak_bytes": float(memory.above_bytes)}


def trained(contender: Contender, inputs: Tensor) -> float:
    """One plain step; its seconds."""
    dist.barrier()
    began = time.perf_counter()
    contender.gradients(inputs)
    contender.update()
    return time.perf_counter() - began


def saved(contender: Contender, inputs: Tensor) -> Figures:
    figures = timed("save", lambda: contender.save(SYNC))
    if isinstance(contender, TorchSave):
        return figures
    step_s = statistics.median(trained(contender, inputs) for _ in range(PLAIN_STEPS))
    for number, name in zip(ASYNC, ("first", "second"), strict=True):
        figures |= saved_behind(contender, inputs, number, name, step_s)
    return figures | {"step_s": step_s}


def saved_behind(contender: Ours | Dcp, inputs: Tensor, number: int, name: str, step_s: float) -> Figures:
    """`pause`: what the call and the wait before the update hold training; `slowed`: all that one step took longer."""
    ended: list[Callable[[], object]] = []
    held = timed(f"{name}_pause", lambda: ended.append(contender.save_behind(number)))
    began = time.perf_counter()
    contender.gradients(inputs)
    computed = time.perf_counter()
    contender.hold()
    waited_s = time.perf_counter() - computed
    contender.update()
    step_with_save_s = time.perf_counter() - began
    held[f"{name}_slowed_s"] = max(0.0, held[f"{name}_pause_s"] + step_with_save_s - step_s)
    held[f"{name}_pause_s"] += waited_s
    return held | timed(f"{name}_behind", ended[0])


def largest(figures: Figures) -> Figures:
    """Over the ranks."""
    values = torch.tensor(list(figures.values()), dtype=torch.float64)
    dist.all_reduce(values, op=dist.ReduceOp.MAX)
    return dict(zip(figures, values.tolist(), strict=True))


def run(arguments: argparse.Namespace) -> Figures:
    shape = PRESETS[arguments.model]
    torch.manual_seed(1)
    contender = CONTENDERS[arguments.contender](Gpt(shape), arguments.folder)
    inputs = batch(shape, step=0, rank=dist.get_rank(), size=1, seq_len=SEQ_LEN)
    trained(contender, inputs)
    if arguments.act == "save":
        return largest(saved(contender, inputs))
    return largest(timed("load", lambda: contender.load(SYNC)))


def _status_bytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("act", choices=["save", "load"])
    parser.add_argument("contender", choices=list(CONTENDERS))
    parser.add_argument("model", choices=list(PRESETS))
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--meeting", required=True, help="a file that the ranks of this turn share")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{arguments.meeting}",
        rank=arguments.rank,
        world_size=arguments.world,
        timeout=timedelta(seconds=PATIENCE_S),
    )
    figures = run(arguments)
    if arguments.rank == 0:
        print(json.dumps(figures), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
