"""torch's FSDP2 behind the engine protocol: one model, one rank, one data-parallel group.

torch's names of the stages: FULL_SHARD is 3, SHARD_GRAD_OP 2, NO_SHARD 0, HYBRID_SHARD a `shard_size` below the world.
Bytes per rank with P parameters in shards of N ranks, Adam, whatever the precision: 4P/N fp32 parameters, which are
their own master (FSDP2 casts while it gathers), 8P/N moments and, from the backward to the end of the step, 4P/N
gradients. Stage 2 differs from 3 between forward and backward alone, where it keeps what was gathered.
"""

from __future__ import annotations

import traceback
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from workers.engine.core import EngineCore
from workers.engine.fsdp2.sharding import Sharding
from workers.engine.fsdp2.traffic import TrailMeter
from workers.engine.precision import MASTER_DTYPE, Precision
from workers.engine.protocol import Held, StepOutcome
from workers.engine.states import Footprint, StateKind
from workers.engine.units import UnitRule
from workers.layout.interval import Interval
from workers.layout.layout import Layout, Piece
from workers.layout.rows import row_layout, rows, stays_whole
from workers.optimizers.config import OptimizerConfig
from workers.optimizers.elementwise import Operands, Span
from workers.optimizers.norms import sum_of_squares


class UnevenUnits(RuntimeError):
    """Ranks ran other units than each other, or in another order: what they sent was not meant for each other."""

    def __init__(self) -> None:
        super().__init__(
            "the ranks ran different units of the model in this step, and FSDP2 gathers a unit when a rank runs it: "
            "nothing was updated; make what is conditional part of a larger unit (units), or use engine zero"
        )


class LostGradients(RuntimeError):
    """A unit had gradients after FSDP2 was done with it."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            f"FSDP2 left out gradients of {list(names[:3])} ({len(names)} parameters): they came after it had reduced "
            "their unit, as with a module used twice under reentrant checkpointing; use use_reentrant=False, or engine "
            "zero"
        )


class Fsdp2Engine(EngineCore):
    """Built from a model whose parameters are equal on every rank; makes no collective while it is built, but for
    HYBRID_SHARD's groups. The model's modules stay and are what trains; their Parameter objects become FSDP2's.
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
        offload: bool = False,
        shard_size: int | None = None,
    ) -> None:
        """offload: parameters, gradients and optimizer state rest on the CPU. shard_size: how many ranks share one copy
        of the state; None: all of them, as in a group that it does not divide."""
        if stage not in (0, 2, 3):
            raise ValueError(f"stage is {stage}; FSDP2 has 3 (FULL_SHARD), 2 (SHARD_GRAD_OP) and 0 (NO_SHARD)")
        if optimizer.name == "muon":
            raise ValueError("optimizer.name is 'muon': it needs whole matrices, and FSDP2 cuts them; use engine zero")
        self._trail = TrailMeter()
        super().__init__(model, precision, optimizer, clip_norm, device, meter=self._trail)
        self._tier = "cpu" if offload else "device"
        self._touched: dict[str, int] = {}
        self._shown = False
        self._wanted_shard_size = 1 if stage == 0 else shard_size
        self._sharding = Sharding(model, units, precision=precision, reshard=stage != 2, offload=offload, device=device)
        self._join(group)

    def micro_step(self, batch: Any, *, weight: float, last: bool) -> Tensor:
        """A surplus call (weight 0) runs the modules too, on a batch of its rank: so it joins what they send."""
        if batch is None:
            raise ValueError("batch is None: FSDP2 joins the others by running the modules; give any batch of the rank")
        with self._at_work():
            if not self._shown:
                self._sharding.show(self._watch)
                self._shown = True
            before = dict(self._touched)
            # Where copies are replicated, they meet once in a step.
            cast(FSDPModule, self._model).set_requires_all_reduce(last)
            loss = self._loss(batch)
            self._backward(loss, weight)
            self._refuse_lost_gradients()
            self._sharding.release()
            if weight == 0.0:
                self._touched.update(before)
            return loss.detach()

    def step(self, *, lr_scale: float, tally: Sequence[float] = ()) -> StepOutcome:
        """Either raises and has changed nothing, or returns and the step is done."""
        with self._at_work():
            grads, loose = self._gradients()
            square, bad = sum_of_squares(list(grads.values()))
            lone = [value for grad in loose.values() for value in grad.reshape(-1).tolist()]
            trail = self._trail.trail
            # What is replicated is summed as often as there are copies.
            verdict = [square / self._replicas, bad, trail, trail * trail]
            sums, tally_sum, touched, lone = self._agree(verdict, tally, [*self._touched.values()], lone)
            if sums[3] * self._world != sums[2] * sums[2]:
                raise UnevenUnits
            self._trail.all_finished()
            values = torch.tensor(lone, dtype=MASTER_DTYPE, device=self._device)
            parts = torch.split(values, [grad.numel() for grad in loose.values()])
            grads |= zip(loose, parts, strict=True)
            square = sums[0] + sum(value * value for value in lone)
            update = partial(self._update, grads, touched, lr_scale)
            outcome = self._conclude(square=square, bad=sums[1], tally=tuple(tally_sum), update=update)
            self._forget_gradients()
            return outcome

    def layout(self) -> Layout[int]:
        shapes = {name: meta.shape for name, meta in self._metas.items()}
        return row_layout(shapes, world=self._world, shard_size=self._shard_size)

    def export(self, kind: StateKind, piece: Piece) -> Tensor:
        values = self._locate(kind, piece)
        return torch.zeros(piece.numel, dtype=MASTER_DTYPE) if values is None else values.to(MASTER_DTYPE)

    def load(self, kind: StateKind, piece: Piece, values: Tensor) -> None:
        if values.numel() != piece.numel:
            raise ValueError(f"{kind} of {piece.tensor} {piece.interval}: {values.numel()} values")
        if (state := self._locate(kind, piece)) is not None:
            state.copy_(values)

    def commit_load(self) -> None:
        """Nothing is derived: parameters are their own master, and every gather starts from them."""

    def rejoin(self, group: dist.ProcessGroup) -> Held:
        held = self._held()
        self._sharding.undo()
        self._params.clear()
        self._beside.clear()
        self._join(group)
        return held

    def footprint(self) -> Footprint:
        sizes: dict[str, dict[str, int]] = defaultdict(lambda: {self._tier: 0})
        for name, param in self._params.items():
            apart = self._metas[name].trainable and not self._precision.master_is_param
            held = self._beside.get(name, {}) | {StateKind.MASTER if apart else StateKind.PARAM: _local(param)}
            for kind, tensor in held.items():
                sizes[kind][self._tier] += tensor.untyped_storage().nbytes()
        grads = sum(_local(p.grad).nbytes for p in self._params.values() if p.grad is not None)
        sizes[StateKind.GRAD][self._tier] = grads
        buffers = sum(buffer.nbytes for buffer in self._model.buffers())
        return Footprint(by_kind=dict(sizes), gathered_bytes=self._gathered_bytes(), buffers_bytes=buffers)

    def _join(self, group: dist.ProcessGroup) -> None:
        self._group, self._world = weakref.ref(group), group.size()
        wanted = self._wanted_shard_size or self._world
        self._shard_size = self._world if self._world % wanted else wanted
        self._replicas, self._part = self._world // self._shard_size, group.rank() % self._shard_size
        self._rank = group.rank()
        self._shown = False
        self._trail.start_group()
        self._sharding.apply(group, shard_size=self._shard_size, meter=self._trail)
        # FSDP2 registers these between passes; the objects stay until the next group.
        self._params = dict(self._model.named_parameters())
        self._touched = dict.fromkeys(self._hypers, 0)
        self._whole: dict[str, weakref.ref[Tensor]] = {}
        self._beside = {
            name: {
                kind: torch.zeros(self._mine(name).numel, dtype=MASTER_DTYPE, device=_local(self._params[name]).device)
                for kind in self._config.beside_master()
            }
            for name in self._hypers
        }

    def _watch(self, name: str, param: nn.Parameter) -> None:
        """Learn when a parameter has a gradient: one that no rank used in a step does not age."""
        if not stays_whole(self._metas[name].shape):
            self._whole[name] = weakref.ref(param)
        if param.requires_grad:
            hook = partial(_note, self._touched, name)
            param.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def _refuse_lost_gradients(self) -> None:
        """What is left on a whole parameter came after FSDP2 had reduced its unit, and would count in the next step."""
        whole = {name: param for name, reference in self._whole.items() if (param := reference()) is not None}
        if late := [name for name, param in whole.items() if param.grad is not None]:
            raise LostGradients(late)

    def _gradients(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """This rank's parts of the reduced gradients, flat, and the unreduced ones of parameters that stay whole. What
        was frozen since the engine was built has none."""
        sharded, loose = {}, {}
        for name in self._hypers:
            param = self._params[name]
            if not param.requires_grad:
                self._touched[name] = 0
            if stays_whole(self._metas[name].shape):
                loose[name] = torch.zeros_like(param) if param.grad is None else param.grad
            elif param.grad is not None and param.requires_grad:
                sharded[name] = _local(param.grad).reshape(-1)
        return sharded, loose

    def _agree(self, *parts: Sequence[float]) -> list[list[float]]:
        """The sums over the ranks, part by part, in one reduction."""
        group = self._group()
        if group is None:
            raise RuntimeError("the engine's process group is gone: its owner destroyed it; call rejoin(group)")
        values = [value for part in parts for value in part]
        sums = torch.tensor(values, dtype=torch.float64, device=self._device)
        dist.all_reduce(sums, group=group)
        return [part.tolist() for part in torch.split(sums.cpu(), [len(part) for part in parts])]

    def _update(self, grads: Mapping[str, Tensor], touched: Sequence[float], lr_scale: float, divisor: float) -> None:
        self._ages.advance(touched)
        for (name, hyper), step, count in zip(self._hypers.items(), self._ages.steps, touched, strict=True):
            state = Operands(
                master=_local(self._params[name]).view(-1),
                grad=grads.get(name, torch.empty(0)),
                beside=self._beside[name],
            )
            if count:
                span = Span(start=0, stop=state.master.numel(), step=step, hyper=hyper)
                self._optimizer.update(state, [span], lr_scale=lr_scale, grad_divisor=divisor)
            self._optimizer.average(state, first=self._ages.updates == 1, window=state.master.numel())

    def _forget_gradients(self) -> None:
        self._touched.update(dict.fromkeys(self._touched, 0))
        for param in self._params.values():
            param.grad = None

    def _mine(self, name: str) -> Interval:
        return rows(self._metas[name].shape, part=self._part, parts=self._shard_size)

    def _locate(self, kind: StateKind, piece: Piece) -> Tensor | None:
        """A view of this rank's values; None for what a frozen tensor has not."""
        if kind not in self.kinds():
            raise KeyError(f"{kind} is not training state; ask for one of {[str(k) for k in self.kinds()]}")
        if piece.tensor not in self._metas:
            raise KeyError(f"the model has no tensor {piece.tensor!r}")
        mine = self._mine(piece.tensor)
        if mine.intersect(piece.interval) != piece.interval:
            raise KeyError(f"this rank does not hold {piece.tensor} {piece.interval}; see layout()")
        if kind is StateKind.MASTER:
            state = _local(self._params[piece.tensor]).view(-1)
        elif piece.tensor in self._beside:
            state = self._beside[piece.tensor][kind]
        else:
            return None
        return state.narrow(0, piece.interval.start - mine.start, piece.numel)

    def _held(self) -> Held:
        mine = self.layout()
        values = {(kind, piece): self.export(kind, piece) for kind in self.kinds() for piece in mine.of(self._rank)}
        return Held(layout=mine, rank=self._rank, values=values)

    def _gathered_bytes(self) -> int:
        whole = [param for reference in self._whole.values() if (param := reference()) is not None]
        return sum(param.untyped_storage().nbytes() for param in whole)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if "gloo" in str(error) or isinstance(error, dist.DistError):
                error.add_note("where the ranks run different units of the model, FSDP2's collectives do not match")
            # The frames hold the group, whose owner wants to destroy it.
            traceback.clear_frames(error.__traceback__)
            raise


def _local(tensor: Tensor) -> Tensor:
    """This rank's rows, outside autograd."""
    with torch.no_grad():
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()


def _note(touched: dict[str, int], name: str, param: Tensor) -> None:
    touched[name] = 1
