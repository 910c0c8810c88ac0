"""Activation checkpointing: a block keeps its inputs alone, and runs its forward again in backward."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint


def recompute(blocks: Iterable[nn.Module]) -> None:
    """Make each block recompute its activations, in place; parameters keep their names.

    The block's `forward` is wrapped, not the block: its hooks stay outside, so an engine that gathers parameters before
    a forward and before a backward sees each of them once.
    """
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def repeated_blocks(model: nn.Module) -> tuple[nn.Module, ...]:
    """The elements of the largest `ModuleList` or `Sequential` of one class, by parameters; empty without one."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList | nn.Sequential)]
    uniform = [tuple(blocks) for blocks in lists if len({type(block) for block in blocks}) == 1 and len(blocks) > 1]
    return max(uniform, key=_numel, default=())


def _numel(blocks: tuple[nn.Module, ...]) -> int:
    return sum(parameter.numel() for block in blocks for parameter in block.parameters())
