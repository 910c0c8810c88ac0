"""Named sizes of the GPT family: plain numbers, because the control plane plans with them and never imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class GptShape:
    """What decides the size of a GPT: pre-LN blocks, learned positions, tied head, biases everywhere."""

    layers: int
    width: int
    heads: int
    vocab: int
    context: int

    def __post_init__(self) -> None:
        if min(self.layers, self.width, self.heads, self.vocab, self.context) < 1:
            raise ValueError(f"{self} needs every number to be at least 1")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by heads {self.heads}; make it a multiple")


PRESETS: Mapping[str, GptShape] = MappingProxyType(
    {
        "gpt-tiny": GptShape(layers=5, width=128, heads=4, vocab=256, context=256),
        "gpt-small": GptShape(layers=8, width=512, heads=8, vocab=256, context=512),
        "gpt-medium": GptShape(layers=15, width=768, heads=12, vocab=256, context=1024),
        "gpt2": GptShape(layers=12, width=768, heads=12, vocab=50257, context=1024),
    }
)

# The classes of its modules, as `units: {layers: [...]}` may name them; a test compares them with the model.
GPT_CLASSES = ("Attention", "Block", "Embedding", "Gpt", "LayerNorm", "Linear", "Mlp", "ModuleList")


def block_numel(shape: GptShape) -> int:
    """Parameters of one block: attention 4W^2 + 4W, MLP 8W^2 + 5W, two layer norms 4W."""
    return 12 * shape.width**2 + 13 * shape.width


def matrix_share(shape: GptShape) -> float:
    """The part of all parameters that is matrices of blocks."""
    return shape.layers * 12 * shape.width**2 / gpt_numel(shape)


def gpt_numel(shape: GptShape) -> int:
    """Parameters of the whole model, exact; the head shares the token table, so it counts once."""
    tables = (shape.vocab + shape.context) * shape.width
    return tables + shape.layers * block_numel(shape) + 2 * shape.width
