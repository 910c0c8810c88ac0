"""What is whole at stage 3 at once: the root, and of the blocks the one in use and the next."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.unit.engine.groups import Seat, engine_at
from workers.models.recompute import recompute, repeated_blocks

WIDTH, RANK, BLOCKS = 8, 2, 5


class Adapted(nn.Module):
    """A frozen weight with a low-rank one that trains beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.down, self.up = nn.Linear(WIDTH, RANK), nn.Linear(RANK, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.frozen(x) + self.up(self.down(x)))


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Adapted() for _ in range(BLOCKS))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


@pytest.mark.parametrize("frozen", ["nothing", "a part of each block", "the root too"])
@pytest.mark.parametrize("kind", [None, "non-reentrant", "reentrant"])
def test_a_block_with_frozen_parts_is_given_back_before_the_next_but_one_is_gathered(
    frozen: str, kind: str | None
) -> None:
    model = Stack()
    model.requires_grad_(frozen == "nothing")
    if frozen != "nothing":
        for block in model.blocks:
            block.down.requires_grad_(True)
            block.up.requires_grad_(True)
        model.first.requires_grad_(frozen != "the root too")
    if kind is not None:
        recompute(repeated_blocks(model), reentrant=kind == "reentrant")
    root, block = (4 * sum(p.numel() for p in part.parameters()) for part in (model.first, model.blocks[0]))
    engine = engine_at(model, Seat(), stage=3)
    # The order is learnt in the first step.
    for _ in range(3):
        engine.micro_step(torch.randn(3, WIDTH), weight=0.5, last=False)
        engine.micro_step(torch.randn(3, WIDTH), weight=0.5, last=True)
        engine.step(lr_scale=1.0)
        assert engine.footprint().gathered_bytes == 0
    assert engine.footprint().gathered_peak_bytes == root + 2 * block
