"""The training state of this rank: what rests where, by the stage's row and the precision, and its way in and out.

Its bytes are those of `docs/memory.md`. In fp32 the parameter is its own master. At stage 3 the fp32 shard is both: it
is cast while it is gathered, so no 2-byte copy rests, and gradients are summed in fp32. Offload moves the same bytes
and adds none; a master that is the whole parameter (fp32, stages 0-2) stays on the device, and is copied to where the
moments are for the update of its unit alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from workers.engine.placement import Placement
from workers.engine.precision import MASTER_DTYPE, Precision
from workers.engine.states import StateKind
from workers.engine.zero.flat import Flat, Unit
from workers.engine.zero.stages import Stage
from workers.layout.interval import Interval
from workers.layout.layout import Piece
from workers.optimizers.config import OptimizerConfig
from workers.tiers.protocol import StateKey


class TrainingState:
    """Master, gradient and what the optimizer keeps of every flat vector, on the tiers that the placement names."""

    def __init__(
        self, stage: Stage, units: Sequence[Unit], precision: Precision, placement: Placement, config: OptimizerConfig
    ) -> None:
        self._config, self._precision, self._placement = config, precision, placement
        self._params_sharded = stage.shards(StateKind.PARAM)
        self._grads_sharded = stage.shards(StateKind.GRAD)
        self._state_sharded = stage.shards(StateKind.MASTER)
        self._flats = [flat for unit in units for flat in unit.flats]
        self._slots = {slot.name: (flat, slot) for flat in self._flats for slot in flat.plan.slots}

    @property
    def grad_dtype(self) -> torch.dtype:
        """At rest. On the wire gradients have the precision's reduce dtype."""
        return MASTER_DTYPE if self._params_sharded else self._precision.params

    def settle(self, *, rank: int, world: int, device: torch.device, fill: bool) -> None:
        """Allocate this rank's state; with `fill` from the parameters' present values, else undefined."""
        for flat in self._flats:
            flat.place(rank=rank, world=world, sharded=self._state_sharded)
            self._allocate(flat)
            if fill and self._rests_apart(flat):
                master = self.master(flat)
                flat.copy_values(master)
                self.commit_master(flat, master)
            whole = not self._params_sharded
            flat.build(device, fill=fill and whole, whole=whole)

    def beside_master(self, flat: Flat) -> tuple[StateKind, ...]:
        """What the optimizer keeps of a flat vector."""
        return self._config.beside_master(matrices=flat.plan.matrices) if flat.plan.trainable else ()

    def master(self, flat: Flat) -> Tensor:
        """The values that the optimizer updates: fp32 where trainable. May be changed until `commit_master`."""
        return self._placement.fetch(self._master_key(flat)) if self._rests_apart(flat) else flat.resting

    def commit_master(self, flat: Flat, values: Tensor) -> None:
        if self._rests_apart(flat):
            self._placement.commit(self._master_key(flat), values)
        elif values.device != flat.full.device:
            flat.resting.copy_(values)

    def ahead(self, flat: Flat, *kinds: StateKind) -> None:
        """The master, and these kinds, will be asked for soon."""
        if self._rests_apart(flat):
            self._placement.ahead(self._master_key(flat))
        for kind in kinds:
            self._placement.ahead(flat.key(kind))

    def outgoing(self, flat: Flat) -> Tensor:
        """This rank's part of the whole parameter vector, in its dtype, ready to be gathered."""
        if self._params_sharded:
            key = self._master_key(flat)
            shard = self._placement.fetch(key)
            if self._placement.stays(key) and shard.device == flat.full.device:
                return shard.to(flat.plan.dtype)
            flat.own.copy_(shard)
            self._placement.release(key)
        return flat.own

    def derive_params(self, flat: Flat) -> None:
        """Cast the master into the part of the resting parameters that it covers."""
        if not self._params_sharded and self._rests_apart(flat):
            flat.resting.copy_(self.master(flat))
            self._placement.release(self._master_key(flat))

    def reader(self, kind: StateKind, piece: Piece) -> Callable[[], Tensor]:
        """Gives fp32 values of a piece of this rank's layout, also when the engine has moved on: a view where it can
        be, a copy of what rests on a disk. Zeros where a tensor has none, as a frozen one has no moments."""
        flat, part = self._locate(kind, piece)
        is_master = kind is StateKind.MASTER
        if is_master and not self._rests_apart(flat):
            view = flat.resting.narrow(0, part.start, part.numel)
            return partial(view.to, MASTER_DTYPE)
        if not is_master and kind not in self.beside_master(flat):
            return partial(torch.zeros, part.numel, dtype=MASTER_DTYPE)
        key = self._master_key(flat) if is_master else flat.key(kind)
        placement = self._placement
        return lambda: placement.read(key, part.start, part.numel).to(MASTER_DTYPE)

    def load(self, kind: StateKind, piece: Piece, values: Tensor) -> None:
        flat, part = self._locate(kind, piece)
        if values.numel() != part.numel:
            raise ValueError(
                f"{kind} of {piece.tensor} {piece.interval}: {values.numel()} values for {part.numel} elements"
            )
        if kind is StateKind.MASTER:
            state = self.master(flat)
            state.narrow(0, part.start, part.numel).copy_(values)
            self.commit_master(flat, state)
        elif kind in self.beside_master(flat):
            state = self._placement.fetch(flat.key(kind))
            state.narrow(0, part.start, part.numel).copy_(values)
            self._placement.commit(flat.key(kind), state)

    def size_bytes(self) -> dict[str, dict[str, int]]:
        """kind -> tier -> bytes at rest."""
        sizes = {str(kind): dict(tiers) for kind, tiers in self._placement.size_bytes().items()}
        if not self._params_sharded:
            sizes[StateKind.PARAM] = {"device": sum(flat.size_bytes for flat in self._flats)}
        return sizes

    def _rests_apart(self, flat: Flat) -> bool:
        """Whether master values exist beside the whole parameter vector."""
        return self._params_sharded or (flat.plan.trainable and not self._precision.master_is_param)

    def _master_key(self, flat: Flat) -> StateKey:
        is_param = self._params_sharded or not flat.plan.trainable
        return flat.key(StateKind.PARAM if is_param else StateKind.MASTER)

    def _allocate(self, flat: Flat) -> None:
        allocate, numel = self._placement.allocate, flat.state.numel
        if self._rests_apart(flat):
            dtype = MASTER_DTYPE if flat.plan.trainable else flat.plan.dtype
            allocate(self._master_key(flat), numel=numel, dtype=dtype)
        if flat.plan.trainable:
            grad_numel = flat.shard.numel if self._grads_sharded else flat.full_numel
            allocate(flat.key(StateKind.GRAD), numel=grad_numel, dtype=self.grad_dtype, near=not self._grads_sharded)
        for kind in self.beside_master(flat):
            allocate(flat.key(kind), numel=numel, dtype=MASTER_DTYPE)

    def _locate(self, kind: StateKind, piece: Piece) -> tuple[Flat, Interval]:
        """The flat vector and the interval of its state on this rank."""
        if kind not in (kinds := self._config.kinds()):
            raise KeyError(f"{kind} is not training state; ask for one of {[str(k) for k in kinds]}")
        if piece.tensor not in self._slots:
            raise KeyError(f"the model has no tensor {piece.tensor!r}")
        flat, slot = self._slots[piece.tensor]
        in_flat = piece.interval.shift(slot.start)
        if in_flat.intersect(flat.state) != in_flat:
            raise KeyError(f"this rank does not hold {piece.tensor} {piece.interval}; see layout()")
        return flat, in_flat.shift(-flat.state.start)
