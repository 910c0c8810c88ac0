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

Tell = Callable[..., None]


class Hooks:
    """Reports what autograd and the modules do to `Passes`, which decides."""

    def __init__(self, model: nn.Module, units: Sequence[Unit], passes: Passes, *, gathers: bool, waits: bool) -> None:
        """gathers: units are whole around their use alone; waits: they may be on their way when they are used."""
        hook = partial(_weakly, weakref.ref(passes))
        root = weakref.ref(units[0])
        before, after = hook(root, _begin_forward), hook(root, partial(_end_forward, gathers))
        self._handles: list[RemovableHandle] = [
            model.register_forward_pre_hook(before, with_kwargs=True),
            model.register_forward_hook(after),
        ]
        for unit in units:
            mine = weakref.ref(unit)
            for number, param in enumerate(param for flat in unit.trainable for param in flat.params):
                tell = hook(mine, lambda live, unit, _, number: live.gradient_arrived(unit, number), number)
                self._handles.append(param.register_post_accumulate_grad_hook(tell))  # type: ignore[no-untyped-call]
            for module in unit.modules if gathers or waits else ():
                before = hook(mine, partial(_before_module, gathers))
                self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
                if gathers and module is not model:
                    after = hook(mine, partial(_after_module, module is unit.modules[-1]))
                    self._handles.append(module.register_forward_hook(after))

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _weakly(passes: weakref.ref[Passes], unit: weakref.ref[Unit], tell: Tell, *more: Any) -> Tell:
    """A hook that tells the two, while they live, with whatever torch gives it."""

    def hook(*seen: Any) -> None:
        live, mine = passes(), unit()
        if live is not None and mine is not None:
            tell(live, mine, *seen, *more)

    return hook


def _begin_forward(passes: Passes, root: Unit, *_: Any) -> None:
    passes.begin_forward()


def _end_forward(gathers: bool, passes: Passes, root: Unit, module: nn.Module, args: Any, output: Any) -> None:
    if gathers:
        _watch_outputs(passes, root, output)
    passes.end_forward()


def _before_module(gathers: bool, passes: Passes, unit: Unit, module: nn.Module, args: Any, kwargs: Any) -> None:
    passes.before_forward(unit)
    if gathers and unit.has_frozen and torch.is_grad_enabled():
        _watch_inputs(passes, unit, (args, kwargs))


def _after_module(last: bool, passes: Passes, unit: Unit, module: nn.Module, args: Any, output: Any) -> None:
    if passes.phase is Phase.FORWARD:
        _watch_outputs(passes, unit, output)
        if last:
            passes.after_forward(unit)


def _watch_outputs(passes: Passes, unit: Unit, output: Any) -> None:
    """Gather before the backward of the unit reads its first parameter."""
    hook = _weakly(weakref.ref(passes), weakref.ref(unit), lambda live, mine, _: live.before_backward(mine))
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
    hook = _weakly(weakref.ref(passes), weakref.ref(unit), lambda live, mine, _: live.inputs_done(mine))
    for tensor in _tensors(inputs):
        if tensor.requires_grad:
            tensor.register_hook(hook)  # type: ignore[no-untyped-call]
            unit.inputs_awaited += 1


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    else:
        yield from (leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor))
