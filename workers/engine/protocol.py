"""What a training loop, a checkpoint and a resize may ask of an engine. ZeRO and FSDP2 both answer it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist

from workers.engine.states import Footprint, StateKind, TensorMeta, Traffic
from workers.layout.layout import Layout, Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """The verdict of the whole group on one step; equal on every rank. grad_norm: without the loss scale. excused:
    skipped while the loss scale was above its least, where an overflow is how it finds its place."""

    grad_norm: float
    skipped: bool
    tally: tuple[float, ...]
    excused: bool = False
    loss_scale: float = 1.0


class Readings(Mapping[tuple[StateKind, Piece], torch.Tensor]):
    """Tensors by kind and piece, each read when it is asked for: what rests on a disk stays there until then."""

    def __init__(self, readers: Mapping[tuple[StateKind, Piece], Callable[[], torch.Tensor]]) -> None:
        self._readers = readers

    def __getitem__(self, item: tuple[StateKind, Piece]) -> torch.Tensor:
        return self._readers[item]()

    def __iter__(self) -> Iterator[tuple[StateKind, Piece]]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one rank held under a former group: the tensors stay alive while this value does."""

    layout: Layout[int]
    rank: int
    values: Mapping[tuple[StateKind, Piece], torch.Tensor]


class Engine(Protocol):
    """One model on one rank of one data-parallel group. Every rank calls `micro_step` as often as the others and then
    `step`; with fewer micro-batches it passes weight 0 for the surplus ones, and joins the collectives with zeros."""

    def micro_step(self, batch: Any, *, weight: float, last: bool) -> torch.Tensor:
        """Forward and backward of one micro-batch; returns its detached loss (0-dim, unweighted). weight: its share of
        the global batch (those of a step sum to 1 over all ranks). last: whether it is the step's last call here."""
        ...

    def step(self, *, lr_scale: float, tally: Sequence[float] = ()) -> StepOutcome:
        """Agree, clip, update: no state changes before all ranks have agreed. lr_scale: multiplies each group's lr.
        tally: rides in the reduction that agrees; the outcome has its sum over the ranks."""
        ...

    def tensors(self) -> Mapping[str, TensorMeta]:
        """Every named parameter of the model (ties under one name), in a fixed order."""
        ...

    def kinds(self) -> tuple[StateKind, ...]:
        """The kinds of training state to save: MASTER, then the optimizer's moments."""
        ...

    def layout(self) -> Layout[int]:
        """rank -> pieces of the training state in this group. Where state is replicated, each rank lists all of it."""
        ...

    def export(self, kind: StateKind, piece: Piece) -> torch.Tensor:
        """A 1-D fp32 tensor (numel of the piece) of this rank's values; a view where it can be."""
        ...

    def load(self, kind: StateKind, piece: Piece, values: torch.Tensor) -> None:
        """Write values (1-D, any float dtype) into this rank's state. The piece lies inside `layout().of(rank)`."""
        ...

    def commit_load(self) -> None:
        """After `load` covered this rank's layout on every rank: derive the parameters. Collective."""
        ...

    def scalars(self) -> dict[str, Any]:
        """State that is not per element, JSON-able: per-parameter step counts, loss scale."""
        ...

    def load_scalars(self, scalars: Mapping[str, Any]) -> None: ...

    def buffers(self) -> Mapping[str, torch.Tensor]:
        """The model's persistent buffers by name, replicated on every rank."""
        ...

    def rejoin(self, group: dist.ProcessGroup) -> Held:
        """Move to another group, in place: same model, same process. The new shards are undefined until `load` and
        `commit_load`; the old ones live in the returned value."""
        ...

    def footprint(self) -> Footprint: ...

    def traffic(self) -> Traffic: ...
