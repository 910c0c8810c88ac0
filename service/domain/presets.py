"""Named sizes of the GPT family: plain numbers, because the control plane plans with them and never imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from service.domain.hf_shape import HfShape


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

    @property
    def block_matrix_numel(self) -> int:
        return 12 * self.width**2

    @property
    def block_numel(self) -> int:
        """Attention 4W^2 + 4W, MLP 8W^2 + 5W, two layer norms 4W."""
        return self.block_matrix_numel + 13 * self.width

    @property
    def numel(self) -> int:
        """Exact; the head shares the token table, so it counts once."""
        return (self.vocab + self.context + 2) * self.width + self.layers * self.block_numel

    @property
    def token_bytes(self) -> int:
        """What a block keeps of a token in types of two bytes: two norms (in, out), Q, K, V, attention, MLP (up, GELU).
        The paper's 34 bytes are these and two masks of dropout, which our blocks have not."""
        return 32 * self.width


Shape = GptShape | HfShape

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
