"""A forward and a backward on tensors that have shapes and no memory: what would be alive, and when most of it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

CPU = torch.device("cpu")


def _attended(query: Tensor, key: Tensor, *rest: Any, **more: Any) -> int:
    """Two products of queries with as many keys, and with their values."""
    return 4 * query.numel() * key.shape[-2]


def _attended_backward(grad: Tensor, query: Tensor, key: Tensor, *rest: Any, **more: Any) -> int:
    """Five: one of the forward's is made again."""
    return 10 * query.numel() * key.shape[-2]


# Torch counts everything but the attention of CPUs, which a trace calls.
OPERATIONS: dict[Any, Callable[..., int]] = {
    **flop_registry,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attended,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attended_backward,
}


class Course(NamedTuple):
    """The most bytes that were alive, beside parameters, and operations on matrices."""

    peak_bytes: int
    operations: int


class Alive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of the storages that calls made and that are still held, and operations on matrices that they took.
    `units`: parameters whose gradients leave when all of them are there."""

    def __init__(self, units: Iterable[Sequence[Tensor]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = self.peak_bytes = self.operations = 0
        self._seen: dict[int, weakref.ref[Any]] = {}
        self._waiting = [unit for unit in units if unit]

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self._take_gradients()
        given = {leaf.untyped_storage()._cdata for leaf in pytree.tree_leaves(args) if isinstance(leaf, Tensor)}
        result = func(*args, **(kwargs or {}))
        formula = OPERATIONS.get(getattr(func, "overloadpacket", None))
        if formula is not None:
            self.operations += int(formula(*args, **(kwargs or {}), out_val=result))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.untyped_storage()._cdata not in given:
                self._note(leaf.untyped_storage())
        self.peak_bytes = max(self.peak_bytes, self.bytes)
        return result

    def _take_gradients(self) -> None:
        complete = [unit for unit in self._waiting if all(param.grad is not None for param in unit)]
        for param in (param for unit in complete for param in unit):
            param.grad = None

    def _note(self, storage: torch.UntypedStorage) -> None:
        number, size = storage._cdata, storage.nbytes()
        if number in self._seen:
            return
        self.bytes += size
        self._seen[number] = weakref.ref(storage, lambda _: self._forget(number, size))

    def _forget(self, number: int, size: int) -> None:
        self.bytes -= size
        del self._seen[number]


def course(
    model: nn.Module, batch: Any, *, units: Iterable[Iterable[str]], params: torch.dtype, buffers: torch.dtype
) -> Course:
    """Of a forward and a backward of one micro-batch. Gradients of a unit leave when all of them are there, as the
    engine packs them. units: the names of their parameters."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        state, inputs = _hollowed(model, batch, params=params, buffers=buffers)
        trained = [[state[name] for name in names if state[name].requires_grad] for names in units]
        with Alive(trained) as alive:
            functional_call(
                _ThereAndBack(model), {f"model.{name}": tensor for name, tensor in state.items()}, (inputs,)
            )
    return Course(peak_bytes=alive.peak_bytes, operations=alive.operations)


class _ThereAndBack(nn.Module):
    """In one call, because blocks that are recomputed read the parameters in the backward again."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Any) -> None:
        loss: Tensor = self.model(batch)
        (loss.float() * 1.0).backward()  # type: ignore[no-untyped-call]


def kept_bytes(model: nn.Module, batch: Any, *, params: torch.dtype, buffers: torch.dtype) -> int:
    """Of each storage that autograd keeps of a forward, parameters left out."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        state, inputs = _hollowed(model, batch, params=params, buffers=buffers)
        with _noting({tensor.untyped_storage()._cdata for tensor in state.values()}) as kept:
            functional_call(model, state, (inputs,))
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def _hollowed(
    model: nn.Module, batch: Any, *, params: torch.dtype, buffers: torch.dtype
) -> tuple[dict[str, Tensor], Any]:
    state = {
        **{name: _hollow(param, params) for name, param in model.named_parameters()},
        **{name: _hollow(buffer, buffers) for name, buffer in model.named_buffers()},
    }
    return state, pytree.tree_map_only(Tensor, lambda leaf: torch.empty_like(leaf, device=CPU), batch)


def _hollow(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    to = dtype if tensor.is_floating_point() else tensor.dtype
    return torch.empty(tensor.shape, dtype=to, device=CPU, requires_grad=tensor.requires_grad)


@contextmanager
def _noting(left_out: set[int]) -> Iterator[dict[int, Tensor]]:
    """The tensors are held, so that no storage takes another's number."""
    kept: dict[int, Tensor] = {}

    def note(tensor: Tensor) -> Tensor:
        number = tensor.untyped_storage()._cdata
        if number not in left_out:
            kept[number] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield kept
