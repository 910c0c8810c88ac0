"""What a user of the service might write: a model that takes its time, and data with a fault."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from workers.checkpoint.store import LocalStore

VOCAB = 64
WIDTH = 24


class Paced(nn.Module):
    """A tiny language model with odd sizes, dropout and a pause in its forward: time for events without load.

    How long is in a file, so that a test lets training wait for what it waits for, and hurry afterwards.
    """

    def __init__(self, pace_file: str) -> None:
        super().__init__()
        self.pace_file = Path(pace_file)
        self.table = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=bias) for bias in (True, False, True))
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, tokens: Tensor) -> Tensor:
        time.sleep(float(self.pace_file.read_text()))
        # A test may hold one process here, and it stays until it is ended.
        while self.pace_file.with_name(f"hold-{os.getpid()}").exists():
            time.sleep(0.05)
        x = self.table(tokens[:, :-1])
        for block in self.blocks:
            x = x + torch.tanh(block(self.dropout(x)))
        logits = x @ self.table.weight.T
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def paced(pace_file: str) -> nn.Module:
    return Paced(pace_file)


def with_a_gate(pace_file: str, gate_file: str) -> nn.Module:
    """The same; and this worker's disk takes no rank's file while there is a file at the gate. It says who waits."""
    gate, create = Path(gate_file), LocalStore.create

    def create_behind_the_gate(store: LocalStore, path: str) -> Any:
        if "/rank-" in path and gate.exists():
            gate.with_suffix(".waiting").write_text(path)
            while gate.exists():
                time.sleep(0.01)
        return create(store, path)

    LocalStore.create = create_behind_the_gate  # type: ignore[method-assign]
    return Paced(pace_file)


class Counting:
    """Sample i is a run of numbers that starts at i."""

    def __init__(self, size: int, broken: int | None) -> None:
        self.size = size
        self.broken = broken

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Tensor:
        if index == self.broken:
            raise ValueError(f"sample {index} has no label")
        return (torch.arange(9) * (1 + index % 5) + index) % VOCAB


def counting(size: int = 97, broken: int | None = None) -> Any:
    return Counting(size, broken)


def confined(more_bytes: int) -> Any:
    """From now on this worker may take so much more memory, and no byte beyond that."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    limit = int(status["VmData"].split()[0]) * 1024 + more_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    return Counting(97, None)
