"""Our GPT under the names and in the shapes of Hugging Face's GPT-2: what the two call the same thing.

GPT-2 keeps the weights of its projections as [in, out] (its `Conv1D`), ours as [out, in] (`nn.Linear`); the order of
q, k and v and of the heads is one and the same. The activation is the exact GELU, the epsilon of the norms 1e-5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from service.domain.presets import PRESETS, GptShape

_WHOLE = {
    "tokens.weight": "transformer.wte.weight",
    "positions.weight": "transformer.wpe.weight",
    "norm.weight": "transformer.ln_f.weight",
    "norm.bias": "transformer.ln_f.bias",
}
_IN_BLOCK = {
    "norm_attention": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.proj": "attn.c_proj",
    "norm_mlp": "ln_2",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}
_TURNED = {"attention.qkv", "attention.proj", "mlp.up", "mlp.down"}
_OURS = re.compile(r"blocks\.(\d+)\.(.+)\.(weight|bias)")
# The head that shares the token table, under the name that a strict load asks for.
HEAD = ("tokens.weight", "lm_head.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """A tensor's name there, and whether its two dims change places."""

    name: str
    turned: bool


def to_gpt2(name: str) -> Renamed:
    """Raises KeyError for a name that our GPT does not have."""
    if name in _WHOLE:
        return Renamed(name=_WHOLE[name], turned=False)
    match = _OURS.fullmatch(name)
    if match is None or match[2] not in _IN_BLOCK:
        raise KeyError(name)
    layer, part, last = match.groups()
    turned = part in _TURNED and last == "weight"
    return Renamed(name=f"transformer.h.{layer}.{_IN_BLOCK[part]}.{last}", turned=turned)


def names_of(shape: GptShape) -> dict[str, Renamed]:
    """Our name -> theirs, of a whole model."""
    blocks = [
        f"blocks.{layer}.{part}.{last}"
        for layer in range(shape.layers)
        for part in _IN_BLOCK
        for last in ("weight", "bias")
    ]
    return {name: to_gpt2(name) for name in (*_WHOLE, *blocks)}


def config(shape: GptShape) -> dict[str, Any]:
    """The content of `config.json`. Byte-level and test vocabularies have no special tokens."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_layer": shape.layers,
        "n_embd": shape.width,
        "n_head": shape.heads,
        "vocab_size": shape.vocab,
        "n_positions": shape.context,
        "activation_function": "gelu",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def shape_of(document: Mapping[str, Any]) -> GptShape:
    """Of a `config.json`. Raises ValueError, naming the field, for a GPT-2 that ours cannot be."""
    wanted = {"model_type": "gpt2", "activation_function": "gelu", "tie_word_embeddings": True}
    given = {"tie_word_embeddings": True, **document}
    for field, value in wanted.items():
        if given.get(field) != value:
            raise ValueError(f"config.json: {field} is {given.get(field)!r}; our GPT has {value!r}")
    return GptShape(
        layers=int(document["n_layer"]),
        width=int(document["n_embd"]),
        heads=int(document["n_head"]),
        vocab=int(document["vocab_size"]),
        context=int(document["n_positions"]),
    )


def described(model: object) -> GptShape | None:
    """The shape behind a manifest's `extra.model`: a preset's name or our GPT's numbers; None for any other model."""
    if isinstance(model, str):
        return PRESETS.get(model)
    if isinstance(model, Mapping) and model.get("name") == "gpt":
        return GptShape(**{field: int(model[field]) for field in asdict(PRESETS["gpt-tiny"])})
    return None
