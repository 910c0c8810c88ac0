"""The only file that registers hooks. They hold nothing: a dropped engine is freed, and its hooks then do nothing."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.hooks import RemovableHandle

from workers.engine.zero.flat import Unit
from workers.engine.zero.passes import Passes, Phase


class Hooks:
    """Reports what autograd and the modules do to `Passes`, which decides."""

    def __init__(self, model: nn.Module, units: Sequence[Unit], passes: Passes, *, gathers: bool, waits: bool) -> None:
        self._passes = weakref.ref(passes)
        self._handles: list[RemovableHandle] = []
        self._on_model(model, units[0], gathers=gathers)
        for unit in units:
            self._on_params(unit)
            if gathers or waits:
                self._on_modules(unit, model, gathers=gathers)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _on_model(self, model: nn.Module, root: Unit, *, gathers: bool) -> None:
        passes, root_ref = self._passes, weakref.ref(root)

        def before(module: nn.Module, args: Any) -> None:
            if (live := passes()) is not None:
                live.begin_forward()

        def after(module: nn.Module, args: Any, output: Any) -> None:
            if (live := passes()) is not None:
                if gathers:
                    _watch_outputs(passes, root_ref, output)
                live.end_forward()

        self._handles.append(model.register_forward_pre_hook(before))
        self._handles.append(model.register_forward_hook(after))

    def _on_params(self, unit: Unit) -> None:
        numbers = range(unit.expected)
        params = [param for flat in unit.trainable for param in flat.params]
        for number, param in zip(numbers, params, strict=True):
            self._handles.append(
                param.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                    _weakly(self._passes, weakref.ref(unit), partial(Passes.gradient_arrived, param=number))
                )
            )

    def _on_modules(self, unit: Unit, model: nn.Module, *, gathers: bool) -> None:
        passes, unit_ref = self._passes, weakref.ref(unit)

        def before(module: nn.Module, args: Any, kwargs: Any) -> None:
            live, mine = passes(), unit_ref()
            if live is None or mine is None:
                return
            live.before_forward(mine)
            if gathers and mine.has_frozen and torch.is_grad_enabled():
                _watch_inputs(live, mine, (args, kwargs))

        def after(module: nn.Module, args: Any, output: Any) -> None:
            live, mine = passes(), unit_ref()
            if live is None or mine is None:
                return
            if live.phase is Phase.FORWARD:
                _watch_outputs(passes, unit_ref, output)
                if module is mine.modules[-1]:
                    live.after_forward(mine)

        for module in unit.modules:
            self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            if gathers and module is not model:
                self._handles.append(module.register_forward_hook(after))


def _weakly(
    passes: weakref.ref[Passes], unit: weakref.ref[Unit], tell: Callable[[Passes, Unit], None]
) -> Callable[[Any], None]:
    def hook(gradient: Any) -> None:
        live, mine = passes(), unit()
        if live is not None and mine is not None:
            tell(live, mine)

    return hook


def _watch_outputs(passes: weakref.ref[Passes], unit: weakref.ref[Unit], output: Any) -> None:
    """Gather before the backward of the unit reads its first parameter."""
    hook = _weakly(passes, unit, Passes.before_backward)
    for tensor in _tensors(output):
        if tensor.grad_fn is not None:
            # After all hooks of the tensor: it may be an input of the next unit, which is to be released first.
            tensor.grad_fn.register_prehook(hook)
        elif tensor.requires_grad:
            tensor.register_hook(hook)  # type: ignore[no-untyped-call]


def _watch_inputs(passes: Passes, unit: Unit, inputs: Any) -> None:
    """A frozen parameter has no gradient to tell that its last use is over; the inputs' gradients tell."""
    if passes.phase is Phase.BACKWARD and unit.inputs_hooked:
        return  # a recomputation whose graph is thrown away; the first forward's inputs are watched
    unit.inputs_hooked = True
    done = _weakly(weakref.ref(passes), weakref.ref(unit), Passes.inputs_done)
    for tensor in _tensors(inputs):
        if tensor.requires_grad:
            tensor.register_hook(done)  # type: ignore[no-untyped-call]
            unit.inputs_awaited += 1


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    else:
        yield from (leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor))
