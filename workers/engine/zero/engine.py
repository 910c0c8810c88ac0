"""ZeRO stages 0-3 behind the engine protocol: one model, one rank, one data-parallel group."""

from __future__ import annotations

import math
import traceback
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from workers.engine.ages import Ages
from workers.engine.buffers import move_buffers, persistent_buffers
from workers.engine.elementwise import FlatOptimizer, Operands, Span, merge_parts
from workers.engine.loss_scale import LossScale
from workers.engine.muon import hidden_matrices, lr_ratio, orthogonalized
from workers.engine.norms import clip_divisor
from workers.engine.optimizer import OptimizerConfig
from workers.engine.placement import Placement
from workers.engine.precision import Precision
from workers.engine.protocol import Held, Readings, StepOutcome
from workers.engine.states import Footprint, StateKind, TensorMeta, Traffic
from workers.engine.units import UnitRule, group_units
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


class ZeroEngine:
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
        self._model = model
        self._deterministic = deterministic
        self._stage = stage_of(stage, ordered=deterministic)
        self._precision = precision
        self._config = optimizer
        self._optimizer = FlatOptimizer(optimizer, uniform=deterministic)
        self._loss_scale = LossScale(precision.scaling)
        self._clip_norm = clip_norm
        self._device = device
        self._placement = placement or Placement.of(device)
        matrices = hidden_matrices(model) if optimizer.name == "muon" else frozenset[str]()
        self._metas = _metas(model, optimizer, matrices)
        move_buffers(model, device, precision.buffers)
        self._units = _build_units(model, units, precision, matrices)
        slots = [s for unit in self._units for flat in unit.trainable for s in flat.plan.slots]
        self._ages = Ages([slot.name for slot in slots])
        ratios = {slot.name: lr_ratio(slot.shape, optimizer.adjust_lr) for slot in slots if slot.name in matrices}
        self._hypers = [optimizer.hyper(s.name, ndim=len(s.shape), ratio=ratios.get(s.name, 1.0)) for s in slots]
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

    def tensors(self) -> Mapping[str, TensorMeta]:
        return self._metas

    def kinds(self) -> tuple[StateKind, ...]:
        return self._config.kinds()

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

    def scalars(self) -> dict[str, Any]:
        return self._ages.scalars() | self._loss_scale.scalars()

    def load_scalars(self, scalars: Mapping[str, Any]) -> None:
        self._ages.load(scalars)
        self._loss_scale.load(scalars)

    def buffers(self) -> Mapping[str, Tensor]:
        return persistent_buffers(self._model)

    def rejoin(self, group: dist.ProcessGroup) -> Held:
        held = self._held()
        self._passes.abandon()
        self._hooks.remove()
        former = self._collectives
        former.close()
        self._placement = self._placement.renewed()
        self._join(group, fill=False)
        self._collectives.continue_from(former)
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

    def traffic(self) -> Traffic:
        return self._collectives.traffic()

    def _join(self, group: dist.ProcessGroup, *, fill: bool) -> None:
        stage = self._stage
        self._failure: RuntimeError | None = None
        self._collectives = collectives = Collectives(group, self._device, ordered=self._deterministic)
        self._state = TrainingState(
            stage=stage,
            precision=self._precision,
            placement=self._placement,
            units=self._units,
            optimizer=self._config,
        )
        self._state.settle(rank=collectives.rank, world=collectives.world, device=self._device, fill=fill)
        self._orthogonal: dict[int, Tensor] = {}
        load = [0] * collectives.world
        self._owners = [
            (flat, Owners(flat, collectives, sharded=stage.shards(StateKind.MASTER), load=load))
            for unit in self._units
            for flat in unit.trainable
            if flat.plan.matrices
        ]
        self._reducer = Reducer(
            stage=stage,
            collectives=collectives,
            placement=self._placement,
            dtype=self._precision.reduce_dtype,
            num_params=len(self._ages.names),
        )
        self._passes = Passes(
            stage=stage, units=self._units, collectives=collectives, reducer=self._reducer, state=self._state
        )
        self._hooks = Hooks(
            self._model,
            self._units,
            self._passes,
            gathers=stage.gather is Gather.AROUND_USE,
            waits=stage.gather is Gather.AFTER_STEP,
        )
        weakref.finalize(self, self._hooks.remove)

    def _forward_backward(self, batch: Any, *, weight: float, last: bool) -> Tensor:
        loss: Tensor = self._model(self._precision.cast_inputs(batch))
        if loss.numel() != 1:
            raise ValueError(f"model(batch) returned shape {tuple(loss.shape)}; the engine needs the mean loss")
        self._passes.begin_backward(last=last)
        (loss.float() * (weight * self._loss_scale.value)).backward()  # type: ignore[no-untyped-call]
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
        # The scale of this step's backwards: it changes only after the step.
        scale = self._loss_scale.value
        norm = math.nan if agreed.bad else math.sqrt(agreed.square) / scale
        if not agreed.bad:
            divisor = scale * clip_divisor(norm, self._clip_norm)
            self._orthogonalize(divisor, agreed.touched)
            self._update(lr_scale, divisor, agreed.touched)
        excused = self._loss_scale.judge(overflowed=agreed.bad > 0)
        self._passes.habits.adopt(agreed.habits)
        self._reducer.start_step(self._units)
        self._settle()
        return StepOutcome(
            grad_norm=norm, skipped=agreed.bad > 0, tally=agreed.tally, excused=excused, loss_scale=scale
        )

    def _agree(self, tally: Sequence[float]) -> Agreed:
        return agree(self._collectives, self._reducer, self._units, self._passes.habits, tally)

    def _refuse_thawed(self) -> None:
        """Which parameters train is fixed when the engine is built: state exists for those alone."""
        for unit in self._units:
            for flat in unit.flats:
                if not flat.plan.trainable and flat.holds_gradients():
                    names = [s.name for s, p in zip(flat.plan.slots, flat.params, strict=True) if p.grad is not None]
                    raise RuntimeError(f"{names} were frozen when the engine was built and now have gradients")

    def _update(self, lr_scale: float, divisor: float, touched: Sequence[float]) -> None:
        """Walk the units: fetch, update where the data are, commit; the next unit's state is asked for ahead."""
        self._ages.advance(touched)
        flats = [flat for unit in self._units for flat in unit.trainable]
        following = dict(zip(flats, [*flats[1:], None], strict=True)) if flats else {}
        for unit in self._units:
            for flat in unit.trainable:
                if (upcoming := following[flat]) is not None:
                    self._state.ahead(upcoming, *self._state.beside_master(upcoming))
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
        for parts in flat.parts:
            yield from merge_parts(parts, touched=touched, steps=self._ages.steps, hypers=self._hypers)

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


def _metas(model: nn.Module, optimizer: OptimizerConfig, matrices: Collection[str]) -> dict[str, TensorMeta]:
    return {
        name: TensorMeta(
            shape=tuple(param.shape),
            dtype=str(param.dtype).removeprefix("torch."),
            trainable=param.requires_grad,
            kept=(StateKind.MASTER, *optimizer.beside_master(matrices=name in matrices)) if matrices else None,
        )
        for name, param in model.named_parameters()
    }


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
