"""Activation checkpointing: a block keeps its inputs alone, and runs its forward again in backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from workers.user_code import SpecError


def recompute(blocks: Iterable[nn.Module], *, reentrant: bool = False) -> None:
    """Make each block recompute its activations, in place; parameters keep their names.

    The block's `forward` is wrapped, not the block: its hooks stay outside, so an engine that gathers parameters before
    a forward and before a backward sees each of them once. reentrant: torch's older kind, for blocks whose backward
    the newer one cannot follow.
    """
    wrap = partial(partial, _reentrant) if reentrant else partial(partial, checkpoint, use_reentrant=False)
    for block in blocks:
        block.forward = wrap(block.forward)


def repeated_blocks(model: nn.Module) -> tuple[nn.Module, ...]:
    """The elements of the largest `ModuleList` or `Sequential` of one class, by parameters; empty without one."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList | nn.Sequential)]
    uniform = [tuple(blocks) for blocks in lists if len({type(block) for block in blocks}) == 1 and len(blocks) > 1]
    return max(uniform, key=_numel, default=())


def _numel(blocks: tuple[nn.Module, ...]) -> int:
    return sum(parameter.numel() for block in blocks for parameter in block.parameters())


def _reentrant(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Gradients pass through tensors that are arguments or results themselves, and are lost without a word elsewhere:
    that is an error here, and a block whose inputs need none (the first one may be so) keeps its activations."""
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    inside = [arg for arg in args if not isinstance(arg, Tensor)]
    if any(leaf.requires_grad for leaf in _tensors([inside, kwargs])):
        raise _refused("takes tensors that need gradients by keyword or inside of other values")
    if not any(arg.requires_grad for arg in args if isinstance(arg, Tensor)):
        return forward(*args, **kwargs)
    output = checkpoint(partial(forward, **kwargs), *args, use_reentrant=True)
    parts = output if isinstance(output, tuple) else (output,)
    if _tensors([part for part in parts if not isinstance(part, Tensor)]):
        raise _refused("gives tensors inside of other values")
    return output


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]


def _refused(problem: str) -> SpecError:
    return SpecError(
        field="training.activation_checkpointing",
        value="reentrant",
        problem=f"a repeated block {problem}, and reentrant checkpointing loses their gradients",
        fix="use activation_checkpointing: true, which has no such limit",
    )
