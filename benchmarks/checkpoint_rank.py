"""One rank of the benchmark of checkpoints: all contenders in one process, act by act in turns; rank 0 prints figures.

Times are from a barrier to the last rank's end; memory is the largest rank's peak above what it held before.
Called by `checkpoints.py`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.checkpoint_contenders import JOB, PATIENCE_S, Contender, Dcp, Ours, Raw, TorchSave, Trainer
from benchmarks.engine_rank import batch
from benchmarks.rounds import Figures, order
from service.domain.presets import PRESETS
from workers.checkpoint.places import step_name

SEQ_LEN = 64
# Saves of four ranks are numbered from 400 on, those behind training from 450 on.
NUMBERS, BEHIND = 100, 50

Rounds = dict[str, list[Figures]]


class Memory:
    """The process's resident size, and its peak since `__enter__` (Linux: `clear_refs` sets the mark back)."""

    def __enter__(self) -> Memory:
        Path("/proc/self/clear_refs").write_text("5")
        self._before = _status_bytes("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.above_bytes = max(0, _status_bytes("VmHWM") - self._before)


class Bench:
    """The contenders of this rank, and what was measured of each, round by round."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.folder, self.world = arguments.folder, arguments.world
        self.trainers: dict[str, Trainer] = {}
        self.contenders: dict[str, Contender] = {}
        shape = PRESETS[arguments.model]
        if arguments.alone:
            self.contenders["torch-save"] = plain = TorchSave(shape, self.folder / "torch-save")
        else:
            ours, dcp = Ours(shape, self.folder / "ours"), Dcp(shape, self.folder / "dcp")
            self.trainers = {"ours": ours, "dcp": dcp}
            self.contenders = {**self.trainers, "raw": Raw(ours, self.folder / "raw")}
        self.inputs = batch(shape, step=0, rank=dist.get_rank(), size=1, seq_len=SEQ_LEN)
        self.found: Rounds = {name: [] for name in self.contenders}
        for each in self.trainers.values() if self.trainers else (plain,):
            each.gradients(self.inputs)
            each.update()

    def saves(self, rounds: int) -> None:
        """At once. The last one of each stays, for whoever loads it."""
        for turn, name in order(list(self.contenders), rounds=rounds):
            number = NUMBERS * self.world + turn
            figures = timed(f"save_{self.world}", partial(self.contenders[name].save, number))
            self.note(name, turn, figures | {f"size_{self.world}_bytes": float(size_bytes(self.place(name, number)))})
            if turn:
                self.remove(name, number - 1)

    def loads(self, saved_by: int, rounds: int) -> None:
        """The last one that so many ranks saved."""
        number = NUMBERS * saved_by + rounds - 1
        for turn, name in order(list(self.contenders), rounds=rounds):
            figures = timed(f"load_{saved_by}_{self.world}", partial(self.contenders[name].load, number))
            self.note(name, turn, figures)

    def saves_behind(self, rounds: int) -> None:
        """While training goes on. The first of each gets its memory, the later ones have it."""
        for turn, name in order(list(self.trainers), rounds=rounds + 1):
            number = NUMBERS * self.world + BEHIND + turn
            label = f"pause_{self.world}" if turn else f"first_pause_{self.world}"
            self.note(name, max(0, turn - 1), saved_behind(self.trainers[name], self.inputs, number, label))
            self.remove(name, number)

    def note(self, name: str, turn: int, figures: Mapping[str, float]) -> None:
        """The group's figures are those of its slowest rank."""
        rounds = self.found[name]
        rounds += [{} for _ in range(turn + 1 - len(rounds))]
        rounds[turn] = {**rounds[turn], **largest(figures)}

    def place(self, name: str, number: int) -> Path:
        folder: Path = self.folder / name / JOB if name == "ours" else self.folder / name
        return folder / step_name(number)

    def remove(self, name: str, number: int) -> None:
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(self.place(name, number))
        dist.barrier()


def timed(name: str, act: Callable[[], object]) -> dict[str, float]:
    dist.barrier()
    with Memory() as memory:
        began = time.perf_counter()
        act()
        mine_s = time.perf_counter() - began
        dist.barrier()
    return {f"{name}_s": mine_s, f"{name}_peak_bytes": float(memory.above_bytes)}


def saved_behind(trainer: Trainer, inputs: Tensor, number: int, name: str) -> dict[str, float]:
    """`NAME_s`: what the call and the wait before the update hold training; `NAME_step_s`: that whole step."""
    ended: list[Callable[[], object]] = []
    held = timed(name, lambda: ended.append(trainer.save_behind(number)))
    began = time.perf_counter()
    trainer.gradients(inputs)
    computed = time.perf_counter()
    trainer.hold()
    held[f"{name}_s"] += time.perf_counter() - computed
    trainer.update()
    held[f"{name}_step_s"] = time.perf_counter() - began
    ended[0]()
    dist.barrier()
    return held


def largest(figures: Mapping[str, float]) -> dict[str, float]:
    """Over the ranks."""
    values = torch.tensor(list(figures.values()), dtype=torch.float64)
    dist.all_reduce(values, op=dist.ReduceOp.MAX)
    return dict(zip(figures, values.tolist(), strict=True))


def size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run(arguments: argparse.Namespace) -> Rounds:
    bench = Bench(arguments)
    if arguments.save:
        bench.saves(arguments.rounds)
    for saved_by in arguments.load:
        bench.loads(saved_by, arguments.rounds)
    if arguments.save:
        bench.saves_behind(arguments.rounds)
    return bench.found


def _status_bytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=list(PRESETS))
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--meeting", required=True, help="a file that the ranks of this turn share")
    parser.add_argument("--alone", action="store_true", help="torch.save in one process")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--load", type=int, action="append", default=[], metavar="WORLD", help="that saved it")
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
