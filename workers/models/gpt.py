"""The GPT family: pre-LN blocks, learned positions, tied head. Read top to bottom; the recipe is all here.

Shapes: B batch, T tokens, C width, H heads, D width of a head, V vocabulary.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from service.domain.presets import GptShape

INIT_STD = 0.02


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, shape: GptShape, dropout: float) -> None:
        super().__init__()
        self.heads = shape.heads
        self.dropout = dropout
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.proj = nn.Linear(shape.width, shape.width)

    def forward(self, x_BTC: Tensor) -> Tensor:
        B, T, C = x_BTC.shape
        q_BHTD, k_BHTD, v_BHTD = self.qkv(x_BTC).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        y_BHTD = F.scaled_dot_product_attention(q_BHTD, k_BHTD, v_BHTD, dropout_p=dropout, is_causal=True)
        y_BTC: Tensor = self.proj(y_BHTD.transpose(1, 2).reshape(B, T, C))
        return F.dropout(y_BTC, self.dropout, self.training)


class Mlp(nn.Module):
    """Four times wider, GELU, back."""

    def __init__(self, shape: GptShape, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x_BTC: Tensor) -> Tensor:
        y_BTC: Tensor = self.down(F.gelu(self.up(x_BTC)))
        return F.dropout(y_BTC, self.dropout, self.training)


class Block(nn.Module):
    """The repeated block, and so the natural unit of sharding."""

    def __init__(self, shape: GptShape, dropout: float) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(shape.width)
        self.attention = Attention(shape, dropout)
        self.norm_mlp = nn.LayerNorm(shape.width)
        self.mlp = Mlp(shape, dropout)

    def forward(self, x_BTC: Tensor) -> Tensor:
        x_BTC = x_BTC + self.attention(self.norm_attention(x_BTC))
        y_BTC: Tensor = x_BTC + self.mlp(self.norm_mlp(x_BTC))
        return y_BTC


class Gpt(nn.Module):
    """`forward(batch)` is the mean cross-entropy of predicting tokens 1..T of a [B, T+1] batch from those before."""

    def __init__(self, shape: GptShape, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape
        self.dropout = dropout
        self.tokens = nn.Embedding(shape.vocab, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape, dropout) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocab, bias=False)
        self.head.weight = self.tokens.weight
        self._initialise()

    def forward(self, batch: Tensor) -> Tensor:
        logits_BTV = self.logits(batch[:, :-1])
        # In fp32: a sum over a vocabulary in a 2-byte type loses the loss's last digits.
        return F.cross_entropy(logits_BTV.flatten(0, 1).float(), batch[:, 1:].flatten())

    def logits(self, tokens_BT: Tensor) -> Tensor:
        """Scores of the next token at every place, [B, T, V]; T is at most the context."""
        T = tokens_BT.shape[1]
        x_BTC = self.tokens(tokens_BT) + self.positions(torch.arange(T, device=tokens_BT.device))
        x_BTC = F.dropout(x_BTC, self.dropout, self.training)
        for block in self.blocks:
            x_BTC = block(x_BTC)
        logits_BTV: Tensor = self.head(self.norm(x_BTC))
        return logits_BTV

    @torch.no_grad()
    def _initialise(self) -> None:
        """GPT-2's: normal 0.02, biases zero, and each projection into the residual stream 1/sqrt(2 layers) of that."""
        for name, parameter in self.named_parameters():
            if "norm" in name:
                continue
            if name.endswith("bias"):
                parameter.zero_()
            else:
                residual = name.endswith(("proj.weight", "down.weight"))
                parameter.normal_(0.0, INIT_STD / math.sqrt(2 * self.shape.layers) if residual else INIT_STD)
