"""Who saves and loads in the benchmark of checkpoints: ours, torch's DCP, torch.save, and the bare disk.

Each holds a state of its own in every rank, of the same model after one step, so that no moment is a page of zeros.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import async_save as dcp_async_save
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from benchmarks.contenders import BETAS, CLIP_NORM, LR, WEIGHT_DECAY, shard
from service.domain.presets import GptShape
from workers.checkpoint import catalogue, saving
from workers.checkpoint.background import BackgroundSaver
from workers.checkpoint.parts import Part, parts_of
from workers.checkpoint.places import step_name
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
PATIENCE_S = 300.0
STRIDE_BYTES = 1 << 20


class Contender(Protocol):
    """Seen by one rank; every rank calls the same."""

    def save(self, number: int) -> None:
        """At once; durable on return."""
        ...

    def load(self, number: int) -> None:
        """In place, whatever world saved it."""
        ...


class Trainer(Contender, Protocol):
    """One that also trains, and saves behind training."""

    def gradients(self, batch_BT: Tensor) -> None: ...

    def hold(self) -> None:
        """What is waited for before an update."""
        ...

    def update(self) -> None: ...

    def save_behind(self, number: int) -> Callable[[], object]:
        """Returns what waits for its end."""
        ...


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

    def __init__(self, shape: GptShape, folder: Path) -> None:
        group = dist.group.WORLD
        assert group is not None
        self.engine = ZeroEngine(
            Gpt(shape),
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

    def parts(self) -> tuple[Part, ...]:
        return parts_of(self.engine, rank=self._rank)

    def save(self, number: int) -> None:
        self._save(number, self.parts(), Watch(number))

    def save_behind(self, number: int) -> Callable[[], object]:
        snapshot = self._snapshot = self._memory.begin(self.parts())
        self._saver.start(number, lambda watch: self._save(number, snapshot.take(), watch))
        return lambda: self._saver.settle(PATIENCE_S)

    def load(self, number: int) -> None:
        manifest = catalogue.inspect(self._store, JOB, number)
        read_into(self.engine, rank=self._rank, manifest=manifest, store=self._store)
        self.engine.commit_load()

    def _save(self, number: int, parts: Sequence[Part], watch: Watch) -> None:
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

    def __init__(self, shape: GptShape, folder: Path) -> None:
        self._model: nn.Module = shard(Gpt(shape))
        self._optimizer = _adamw(self._model)
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
        dcp_save(self._state(), checkpoint_id=self._folder / step_name(number))

    def save_behind(self, number: int) -> Callable[[], object]:
        place = self._folder / step_name(number)
        future: Any = dcp_async_save(self._state(), checkpoint_id=place, process_group=self._group_behind)
        return lambda: future.result()

    def load(self, number: int) -> None:
        """In place; what `set_state_dict` does after it is not counted."""
        dcp_load(self._state(), checkpoint_id=self._folder / step_name(number))

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self._model, self._optimizer)
        return {"model": model, "optim": optimizer}


class Raw:
    """The very bytes that a rank of ours saves, from where they lie to the disk: nothing counted, nothing named."""

    def __init__(self, ours: Ours, folder: Path) -> None:
        self._ours, self._folder = ours, folder
        folder.mkdir(exist_ok=True)

    def save(self, number: int) -> None:
        place = self._folder / step_name(number)
        place.mkdir(exist_ok=True)
        descriptor = os.open(place / str(dist.get_rank()), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for part in self._ours.parts():
            data = part.values().detach().reshape(-1).view(torch.uint8).numpy().data
            for start in range(0, len(data), STRIDE_BYTES):
                os.write(descriptor, data[start : start + STRIDE_BYTES])
        os.fsync(descriptor)
        os.close(descriptor)

    def load(self, number: int) -> None:
        """This rank's share of all files, into one small buffer."""
        files = sorted((self._folder / step_name(number)).iterdir())
        sizes = [file.stat().st_size for file in files]
        share = sum(sizes) // dist.get_world_size()
        first = share * dist.get_rank()
        place, buffer = 0, memoryview(bytearray(STRIDE_BYTES))
        for file, size in zip(files, sizes, strict=True):
            start, stop = max(first, place), min(first + share, place + size)
            if start < stop:
                _read(file, start - place, stop - place, buffer)
            place += size


class TorchSave:
    """One process with all of it and one file: what a script without any of this does."""

    def __init__(self, shape: GptShape, folder: Path) -> None:
        self._model = Gpt(shape)
        self._optimizer = _adamw(self._model)
        self._folder = folder

    def gradients(self, batch_BT: Tensor) -> None:
        self._model(batch_BT).backward()

    def update(self) -> None:
        self._optimizer.step()

    def save(self, number: int) -> None:
        state = {"model": self._model.state_dict(), "optim": self._optimizer.state_dict()}
        (self._folder / step_name(number)).mkdir(parents=True)
        with (self._folder / step_name(number) / "all.pt").open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())

    def load(self, number: int) -> None:
        state = torch.load(self._folder / step_name(number) / "all.pt", weights_only=True)
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optim"])


def _adamw(model: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True)


def _read(file: Path, start: int, stop: int, buffer: memoryview) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    for place in range(start, stop, len(buffer)):
        os.preadv(descriptor, [buffer[: stop - place]], place)
    os.close(descriptor)
