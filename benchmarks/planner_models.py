"""Models and data of the user's own kind that `planner.py` plans and measures: none of ours, tied, partly frozen."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from service.domain.presets import GptShape
from workers.models.gpt import Gpt

CLASSES = 10


class Residual(nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(8, width)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y_BCHW: Tensor = self.second(nn.functional.gelu(self.norm(self.first(x_BCHW))))
        return x_BCHW + y_BCHW


class ConvNet(nn.Module):
    """No transformer: a classifier of small images; `forward(batch)` gives the loss."""

    def __init__(self, *, width: int = 256, depth: int = 6) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, stride=4)
        self.blocks = nn.ModuleList(Residual(width) for _ in range(depth))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        x_BCHW = self.stem(batch["image"])
        for block in self.blocks:
            x_BCHW = block(x_BCHW)
        scores_BK: Tensor = self.head(x_BCHW.mean(dim=(2, 3)))
        return nn.functional.cross_entropy(scores_BK.float(), batch["label"])


def images(*, count: int = 64, side: int = 32) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        {"image": torch.randn(3, side, side, generator=generator), "label": torch.tensor(each % CLASSES)}
        for each in range(count)
    ]


def tuned(*, layers: int = 6, width: int = 384) -> nn.Module:
    """A GPT with tied ends, of which only the upper half and the norms are trained."""
    model = Gpt(GptShape(layers=layers, width=width, heads=6, vocab=2048, context=128))
    for block in list(model.get_submodule("blocks").children())[: layers // 2]:
        for name, param in block.named_parameters():
            param.requires_grad_("norm" in name)
    return model
