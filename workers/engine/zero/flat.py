"""Flat vectors in memory: one storage per flat, parameters as views of it, whole or released."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from workers.engine.states import StateKind
from workers.engine.zero.collectives import Pending
from workers.engine.zero.unit import FlatPlan, UnitPlan
from workers.layout.interval import Interval
from workers.optimizers.elementwise import Part
from workers.tiers.protocol import StateKey


class Flat:
    """A flat plan bound to parameters and to one rank of a group. `full` is the padded vector that the parameters view.

    Freeing resizes its storage to zero and refilling brings it back, so views that autograd saved are valid again; a
    parameter's version counter is its own and never moves.
    """

    def __init__(
        self, *, unit: str, index: int, first_param: int, plan: FlatPlan, params: Sequence[nn.Parameter]
    ) -> None:
        self.unit, self.index, self.first_param, self.plan = unit, index, first_param, plan
        self.params = tuple(params)
        self.full: Tensor
        self._whole: list[Tensor]
        self._blank: list[Tensor]
        self.full_numel = self.size_bytes = 0
        self.parts: tuple[tuple[Part, ...], ...] = ()
        self.shard = self.state = Interval(0, 0)
        # Nothing landed in the gradient in this step: the next contribution replaces it.
        self.clean = True

    def key(self, kind: StateKind) -> StateKey:
        return StateKey(self.index, kind)

    def place(self, *, rank: int, world: int, sharded: bool) -> None:
        """Where this rank stands: its shard, and the part that its training state covers."""
        self.shard = self.plan.shard(rank, world)
        self.full_numel = self.shard.numel * world
        self.state = self.shard if sharded else Interval(0, self.full_numel)
        # Cut at the borders of all ranks' shards even where one rank holds all: a fused kernel rounds its tail apart,
        # and every stage shall give the same bits.
        starts = range(self.state.start, self.state.stop, max(self.shard.numel, 1))
        self.parts = tuple(self._inside(Interval(start, start + self.shard.numel)) for start in starts)
        self.size_bytes = self.full_numel * self.plan.dtype.itemsize
        self.clean = True

    def _inside(self, interval: Interval) -> tuple[Part, ...]:
        """The parameters in an interval of this rank's state."""
        numbers = {slot: number for number, slot in enumerate(self.plan.slots, start=self.first_param)}
        common = [(numbers[slot], at.shift(-self.state.start)) for slot, at in self.plan.cut(interval)]
        return tuple(Part(number=number, start=at.start, stop=at.stop) for number, at in common)

    def build(self, device: torch.device, *, fill: bool, whole: bool) -> None:
        """A new whole vector, and the parameters on it; with `fill` it takes over the values that they have.
        Without `whole` it is released at once."""
        # Memory that nobody writes to costs nothing: at stage 3 it is released unseen.
        empty = torch.zeros if whole else torch.empty
        self.full = empty(self.full_numel, dtype=self.plan.dtype, device=device)
        self._whole = self.views(self.full)
        nothing = torch.nan if self.full.is_floating_point() else torch.iinfo(self.full.dtype).max
        self._blank = [self.full.new_full((), nothing).expand(view.shape) for view in self._whole]
        for view, param in zip(self._whole, self.params, strict=True):
            if fill and not param.is_meta:
                view.copy_(param.detach())
            # The same Parameter object on other memory: ties, names and hooks stay.
            param.grad = None
            if param.is_meta:
                leave_meta(param, view.device)
            param.data = view
        if not whole:
            self.release()

    def copy_values(self, into: Tensor) -> None:
        """The values that the parameters have, where the training state covers them."""
        params = {slot: param for slot, param in zip(self.plan.slots, self.params, strict=True)}
        for slot, common in self.plan.cut(self.state):
            if params[slot].is_meta:
                continue
            values = params[slot].detach().reshape(-1).narrow(0, common.start - slot.start, common.numel)
            into.narrow(0, common.start - self.state.start, common.numel).copy_(values)

    def views(self, vector: Tensor) -> list[Tensor]:
        """The parameters' shapes in another vector of this plan."""
        return [vector.narrow(0, s.start, s.numel).view(s.shape) for s in self.plan.slots]

    @property
    def own(self) -> Tensor:
        """This rank's part of the whole vector."""
        return self.full.narrow(0, self.shard.start, self.shard.numel)

    @property
    def resting(self) -> Tensor:
        """The part of the whole vector that the training state covers."""
        return self.full.narrow(0, self.state.start, self.state.numel)

    def take_gradients(self) -> list[Tensor | None]:
        """What is new since the last call; the parameters forget it."""
        grads = [param.grad for param in self.params]
        for param in self.params:
            param.grad = None
        return [grad.to_dense() if grad is not None and grad.is_sparse else grad for grad in grads]

    def holds_gradients(self) -> bool:
        return any(param.grad is not None for param in self.params)

    def refill(self) -> None:
        """Room for the whole vector; its values are undefined until a gather has filled it."""
        self.full.untyped_storage().resize_(self.size_bytes)
        for param, view in zip(self.params, self._whole, strict=True):
            param.data = view

    def release(self) -> None:
        """Give the memory back. Meanwhile the parameters read as NaN: who uses one outside its unit gets no old value
        and no fault of the process, but a loss that is not finite."""
        for param, blank in zip(self.params, self._blank, strict=True):
            param.data = blank
        self.full.untyped_storage().resize_(0)


class Unit:
    """A unit on this rank: its flats, and where it stands in the present pass."""

    def __init__(self, *, index: int, plan: UnitPlan, modules: Sequence[nn.Module], flats: Sequence[Flat]) -> None:
        self.index, self.plan = index, plan
        self.modules, self.flats = tuple(modules), tuple(flats)
        self.trainable = tuple(f for f in flats if f.plan.trainable)
        self.has_frozen = len(self.trainable) < len(self.flats)
        self.expected = sum(len(f.params) for f in self.trainable)
        self.arrived: set[int] = set()
        self.pending: list[Pending] = []
        self.whole = True
        self.begin_pass()

    @property
    def complete(self) -> bool:
        """Every trainable parameter has its gradient of this backward."""
        return len(self.arrived) == self.expected

    def begin_pass(self) -> None:
        self.arrived.clear()
        self.inputs_awaited = 0
        self.inputs_hooked = False

    @property
    def size_bytes(self) -> int:
        return sum(flat.size_bytes for flat in self.flats)

    def wait(self) -> None:
        """The parameters may be read."""
        pending, self.pending = self.pending, []
        for each in pending:
            each.wait()


def leave_meta(param: nn.Parameter, device: torch.device) -> None:
    """The same object, with its ties and attributes, where `.data` can give it memory."""
    nothing = torch.empty(0, dtype=param.dtype, device=device)
    # What `torch.utils.swap_tensors` does, which refuses parameters that an LSTM remembers by weak references.
    torch._C._swap_tensor_impl(param, torch.Tensor._make_subclass(type(param), nothing, param.requires_grad))
