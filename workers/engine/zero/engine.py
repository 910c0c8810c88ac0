"""ZeRO stages 0-3 behind the engine protocol: one model, one rank, one data-parallel group."""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from workers.engine.core import EngineCore, move_buffers
from workers.engine.placement import Placement
from workers.engine.precision import Precision
from workers.engine.protocol import Held, Readings, StepOutcome
from workers.engine.states import Footprint, Meter, StateKind
from workers.engine.units import UnitRule, group_units, hidden_matrices
from workers.engine.zero.agreement import Agreed, agree
from workers.engine.zero.collectives import Collectives
from workers.engine.zero.flat import Flat, Unit
from workers.engine.zero.hooks import Hooks
from workers.engine.zero.owners import Owners
from workers.engine.zero.passes import Passes
from workers.engine.zero.reduction import Reducer
from workers.engine.zero.stages import Gather, stage_of
from workers.engine.zero.state import TrainingState
from workers.engine.zero.unit import layout, plan_of
from workers.layout.layout import Layout, Piece
from workers.optimizers.config import OptimizerConfig
from workers.optimizers.elementwise import Operands, Span, merge_parts
from workers.optimizers.muon import orthogonalized


class ZeroEngine(EngineCore):
    """Built from a model whose parameters are equal on every rank (same seed); makes no collective while it is built.
    Parameters on the meta device may start so: their state is undefined until `load` and `commit_load`.
    deterministic: the same bits on any number N of ranks, where rank r takes every N-th micro-batch from the r-th on.

    The model's Parameter objects stay and become views of the flat vectors. After an error out of `micro_step` or
    `step` only `rejoin` is legal.
    """

    def __init__(
        self,
        model: nn.Module,
        group: dist.ProcessGroup,
        *,
        stage: int,
        precision: Precision,
        optimizer: OptimizerConfig,
        clip_norm: float | None,
        units: UnitRule,
        device: torch.device,
        placement: Placement | None = None,
        deterministic: bool = False,
    ) -> None:
        if deterministic and optimizer.name == "muon":
            raise ValueError("Muon has no deterministic form: what it makes of a matrix depends on how ranks cut it")
        matrices = hidden_matrices(model) if optimizer.name == "muon" else frozenset[str]()
        super().__init__(
            model, precision, optimizer, clip_norm, device, meter=Meter(), matrices=matrices, uniform=deterministic
        )
        self._deterministic = deterministic
        self._stage = stage_of(stage, ordered=deterministic)
        self._placement = placement or Placement.of(device)
        move_buffers(model, device, precision.buffers)
        self._units = _build_units(model, units, precision, matrices)
        self._start(slot.name for flat in self._trainable() for slot in flat.plan.slots)
        self._join(group, fill=True)

    def micro_step(self, batch: Any, *, weight: float, last: bool) -> Tensor:
        with self._at_work():
            if weight == 0.0:
                return self._surplus(batch, last=last)
            return self._forward_backward(batch, weight=weight, last=last)

    def step(self, *, lr_scale: float, tally: Sequence[float] = ()) -> StepOutcome:
        """Either raises and has changed nothing, or returns and the step is done; a peer that dies after all had agreed
        shows in the next call."""
        with self._at_work():
            return self._step(lr_scale, tally)

    def layout(self) -> Layout[int]:
        return layout((unit.plan for unit in self._units), stage=self._stage.number, world=self._collectives.world)

    def export(self, kind: StateKind, piece: Piece) -> Tensor:
        return self._state.reader(kind, piece)()

    def load(self, kind: StateKind, piece: Piece, values: Tensor) -> None:
        self._state.load(kind, piece, values)

    def commit_load(self) -> None:
        for unit in self._units:
            self._publish(unit, unit.flats)
        self._settle()
        self._raise_failure()

    def rejoin(self, group: dist.ProcessGroup) -> Held:
        held = self._held()
        self._passes.abandon()
        self._hooks.remove()
        self._collectives.close()
        self._placement = self._placement.renewed()
        self._join(group, fill=False)
        return held

    def footprint(self) -> Footprint:
        return Footprint(
            by_kind=self._state.size_bytes(),
            gathered_bytes=self._passes.gathered_bytes,
            gathered_peak_bytes=self._passes.gathered_peak_bytes,
            buckets_bytes=self._reducer.buckets.size_bytes,
            staging_bytes=self._placement.staging_bytes,
            buffers_bytes=sum(buffer.nbytes for buffer in self._model.buffers()),
        )

    def _join(self, group: dist.ProcessGroup, *, fill: bool) -> None:
        stage = self._stage
        self._failure: RuntimeError | None = None
        self._collectives = collectives = Collectives(
            group, self._device, ordered=self._deterministic, meter=self._meter
        )
        self._state = TrainingState(stage, self._units, self._precision, self._placement, self._config)
        self._state.settle(rank=collectives.rank, world=collectives.world, device=self._device, fill=fill)
        self._orthogonal: dict[int, Tensor] = {}
        load = [0] * collectives.world
        self._owners = [
            (flat, Owners(flat, collectives, sharded=stage.shards(StateKind.MASTER), load=load))
            for flat in self._trainable()
            if flat.plan.matrices
        ]
        dtype, num_params = self._precision.reduce_dtype, len(self._ages.names)
        self._reducer = Reducer(stage, collectives, self._placement, dtype=dtype, num_params=num_params)
        self._passes = Passes(stage, self._units, collectives, reducer=self._reducer, state=self._state)
        gathers, waits = stage.gather is Gather.AROUND_USE, stage.gather is Gather.AFTER_STEP
        self._hooks = Hooks(self._model, self._units, self._passes, gathers=gathers, waits=waits)
        weakref.finalize(self, self._hooks.remove)

    def _forward_backward(self, batch: Any, *, weight: float, last: bool) -> Tensor:
        loss = self._loss(batch)
        self._passes.begin_backward(last=last)
        self._backward(loss, weight)
        self._passes.end_backward()
        return loss.detach()

    def _surplus(self, batch: Any, *, last: bool) -> Tensor:
        """Join the others with zeros. Where units are gathered as modules use them, the modules run here too: what they
        use, and how often, is known by running them."""
        if self._stage.gather is Gather.AROUND_USE and batch is not None:
            with self._reducer.muted(self._units):
                return self._forward_backward(batch, weight=0.0, last=last)
        self._passes.join(last=last)
        return torch.zeros((), device=self._device)

    def _step(self, lr_scale: float, tally: Sequence[float]) -> StepOutcome:
        self._reducer.drain()
        self._refuse_thawed()
        agreed = self._agree(tally)
        if agreed.late:
            self._reducer.flush(self._units)
            agreed = self._agree(tally)
        update = partial(self._update, lr_scale, agreed.touched)
        outcome = self._conclude(square=agreed.square, bad=agreed.bad, tally=agreed.tally, update=update)
        self._passes.habits.adopt(agreed.habits)
        self._reducer.start_step(self._units)
        self._settle()
        return outcome

    def _agree(self, tally: Sequence[float]) -> Agreed:
        return agree(self._collectives, self._reducer, self._units, self._passes.habits, tally)

    def _refuse_thawed(self) -> None:
        """Which parameters train is fixed when the engine is built: state exists for those alone."""
        frozen = [flat for unit in self._units for flat in unit.flats if not flat.plan.trainable]
        pairs = [pair for flat in frozen for pair in zip(flat.plan.slots, flat.params, strict=True)]
        if names := [slot.name for slot, param in pairs if param.grad is not None]:
            raise RuntimeError(f"{names} were frozen when the engine was built and now have gradients")

    def _trainable(self) -> list[Flat]:
        return [flat for unit in self._units for flat in unit.trainable]

    def _update(self, lr_scale: float, touched: Sequence[float], divisor: float) -> None:
        """Walk the units: fetch, update where the data are, commit; the next unit's state is asked for ahead."""
        self._orthogonalize(divisor, touched)
        self._ages.advance(touched)
        upcoming = iter(self._trainable()[1:])
        for unit in self._units:
            for flat in unit.trainable:
                if (following := next(upcoming, None)) is not None:
                    self._state.ahead(following, *self._state.beside_master(following))
                self._update_flat(flat, touched, lr_scale=lr_scale, divisor=divisor)
            self._publish(unit, unit.trainable)

    def _orthogonalize(self, divisor: float, touched: Sequence[float]) -> None:
        """What Muon makes of whole matrices. No state changes before all ranks have theirs and have agreed on it."""
        for flat, owners in self._owners:
            momentum = self._placement.fetch(flat.key(StateKind.MOMENTUM))
            grad, spans = self._reducer.state_gradient(flat).to(momentum.device), self._spans(flat, touched)
            ahead = self._optimizer.lookahead(momentum, grad, spans, grad_divisor=divisor).to(self._device)
            self._placement.release(flat.key(StateKind.MOMENTUM))
            self._orthogonal[flat.index] = owners.apply(orthogonalized, ahead)
        if self._owners:
            self._collectives.agree([0.0])

    def _spans(self, flat: Flat, touched: Sequence[float]) -> Iterator[Span]:
        """What had a gradient, cut where every stage cuts."""
        hypers = tuple(self._hypers.values())
        for parts in flat.parts:
            yield from merge_parts(parts, touched=touched, steps=self._ages.steps, hypers=hypers)

    def _update_flat(self, flat: Flat, touched: Sequence[float], *, lr_scale: float, divisor: float) -> None:
        """Where the moments are: what rests elsewhere is copied there, and the master back."""
        beside = {kind: self._placement.fetch(flat.key(kind)) for kind in self._state.beside_master(flat)}
        master = self._state.master(flat)
        where = next(iter(beside.values()), master).device
        state = Operands(
            master=master.to(where),
            grad=self._reducer.state_gradient(flat).to(where),
            beside=beside,
            orthogonal=self._orthogonal.pop(flat.index).to(where) if flat.plan.matrices else None,
        )
        self._optimizer.update(state, self._spans(flat, touched), lr_scale=lr_scale, grad_divisor=divisor)
        self._optimizer.average(state, first=self._ages.updates == 1, window=flat.shard.numel)
        self._state.commit_master(flat, state.master)
        for kind, values in state.beside.items():
            self._placement.commit(flat.key(kind), values)

    def _publish(self, unit: Unit, flats: Sequence[Flat]) -> None:
        """The parameters follow their masters; where ranks hold parts of the master, the parts are gathered."""
        for flat in flats:
            self._state.derive_params(flat)
            if self._stage.gather is Gather.AFTER_STEP and self._failure is None:
                with self._keeping_failure():
                    unit.pending.append(self._collectives.gather(flat.full, flat.own, unit=flat.unit))

    def _settle(self) -> None:
        """No message between steps: one that nobody takes any more would stall its connection."""
        for unit in self._units:
            if self._failure is None:
                with self._keeping_failure():
                    unit.wait()

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self._raise_failure()
        try:
            yield
        except BaseException as error:
            # A receive still posted in a frame would write into memory that `abandon` gives away.
            traceback.clear_frames(error.__traceback__)
            self._passes.abandon()
            raise

    @contextmanager
    def _keeping_failure(self) -> Iterator[None]:
        """For collectives after the point of no return: the update must reach every unit, then the failure is told."""
        try:
            yield
        except RuntimeError as error:
            # The frames hold the group, whose owner wants to destroy it.
            traceback.clear_frames(error.__traceback__)
            self._failure = error
            self._passes.abandon()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _held(self) -> Held:
        mine, rank = self.layout(), self._collectives.rank
        readers = {(kind, piece): self._state.reader(kind, piece) for kind in self.kinds() for piece in mine.of(rank)}
        return Held(layout=mine, rank=rank, values=Readings(readers))


def _build_units(model: nn.Module, rule: UnitRule, precision: Precision, matrices: Collection[str]) -> list[Unit]:
    units: list[Unit] = []
    flat_index = first_param = 0
    for grouping in group_units(model, rule):
        plan, flats = plan_of(grouping, precision.param_dtype, matrices), []
        for flat_plan in plan.flats:
            params = [grouping.params[slot.name] for slot in flat_plan.slots]
            flats.append(Flat(unit=plan.name, index=flat_index, first_param=first_param, plan=flat_plan, params=params))
            flat_index += 1
            first_param += len(params) if flat_plan.trainable else 0
        units.append(Unit(index=len(units), plan=plan, modules=grouping.modules, flats=flats))
    return units
