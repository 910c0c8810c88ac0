"""Blocks that recompute give the gradients of those that do not, whichever kind, or say why they cannot."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from service.domain.presets import GptShape
from workers.models.gpt import Gpt
from workers.models.recompute import recompute, repeated_blocks
from workers.user_code import SpecError

SHAPE = GptShape(layers=3, width=16, heads=2, vocab=11, context=8)
KINDS = pytest.mark.parametrize("reentrant", [False, True])


def gpt() -> Gpt:
    torch.manual_seed(1)
    return Gpt(SHAPE, dropout=0.2)


def tokens() -> Tensor:
    return torch.randint(SHAPE.vocab, (3, 9), generator=torch.Generator().manual_seed(0))


@KINDS
def test_recomputed_blocks_give_the_same_gradients(reentrant: bool) -> None:
    """Also of random numbers: the second run draws those of the first."""
    plain, saving = gpt(), gpt()
    recompute(repeated_blocks(saving), reentrant=reentrant)
    for model in (plain, saving):
        torch.manual_seed(2)
        model(tokens()).backward()
    assert list(dict(saving.named_parameters())) == list(dict(plain.named_parameters()))
    for a, b in zip(plain.parameters(), saving.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


@KINDS
def test_recomputation_runs_each_block_once_more_and_its_hooks_only_once(reentrant: bool) -> None:
    model, hooks, runs = gpt(), [], []
    blocks = repeated_blocks(model)
    recompute(blocks, reentrant=reentrant)
    blocks[0].register_forward_pre_hook(lambda *_: hooks.append(1))
    blocks[0].mlp.register_forward_pre_hook(lambda *_: runs.append(1))
    model(tokens()).backward()
    assert (len(hooks), len(runs)) == (1, 2)


def test_the_repeated_blocks_of_a_gpt_are_its_blocks() -> None:
    model = gpt()
    assert repeated_blocks(model) == tuple(model.blocks)
    assert repeated_blocks(nn.Linear(2, 2)) == ()


@KINDS
def test_a_first_block_whose_inputs_need_no_gradient_has_its_own(reentrant: bool) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    recompute(model, reentrant=reentrant)
    model(torch.ones(1, 2)).sum().backward()
    assert all(param.grad is not None for param in model.parameters())


class Block(nn.Module):
    def __init__(self, gives: str) -> None:
        super().__init__()
        self.linear, self.gives = nn.Linear(2, 2), gives

    def forward(self, x: Tensor, scale: Any = None) -> Any:
        y = self.linear(x) * (1 if scale is None else scale)
        return {"y": y} if self.gives == "dictionary" else (y, [y]) if self.gives == "list" else y


@pytest.mark.parametrize(("gives", "keyword"), [("dictionary", False), ("list", False), ("tensor", True)])
def test_gradients_that_reentrant_recomputation_would_lose_are_an_error(gives: str, keyword: bool) -> None:
    block = Block(gives)
    recompute([block], reentrant=True)
    scale = {"scale": torch.ones(2, requires_grad=keyword)}
    with pytest.raises(SpecError, match="use activation_checkpointing: true"):
        block(torch.ones(1, 2, requires_grad=True), **scale)
