"""The size of a Hugging Face model, from its config.json: GPT-2, and Llama with its kin (Mistral, Qwen2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

FAMILIES = ("gpt2", "llama", "mistral", "qwen2")
LARGEST = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class HfShape:
    """As GptShape has it: parameters of the whole (a tied head counts once), of a block and of a block's matrices;
    token_bytes: what a block keeps of a token for its backward, in types of two bytes."""

    layers: int
    width: int
    heads: int
    vocab: int
    context: int
    numel: int
    block_numel: int
    block_matrix_numel: int
    token_bytes: int


def shape_in(config: Mapping[str, Any]) -> HfShape | None:
    """None for another family, and for a config that does not say what the formulas need."""
    family = str(config.get("model_type"))
    if family not in FAMILIES or config.get("quantization_config") or config.get("add_cross_attention"):
        return None
    count: Callable[..., int] = _Counts(config)
    try:
        return _gpt2(config, count) if family == "gpt2" else _llama(config, count, family)
    except ValueError:
        return None


class _Counts:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def __call__(self, key: str, otherwise: int | None = None) -> int:
        value = self._config.get(key)
        value = otherwise if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
            raise ValueError(f"{key} = {value!r}")
        return value


def _gpt2(config: Mapping[str, Any], count: Callable[..., int]) -> HfShape:
    """Biases everywhere, two norms of a weight and a bias, learned positions."""
    width, layers, vocab, context = count("n_embd"), count("n_layer"), count("vocab_size"), count("n_positions")
    hidden = count("n_inner", 4 * width)
    matrices = 4 * width * width + 2 * width * hidden
    block = matrices + 5 * width + hidden + 4 * width
    tables = vocab * (1 if config.get("tie_word_embeddings", True) else 2) + context
    return HfShape(
        layers=layers,
        width=width,
        heads=count("n_head"),
        vocab=vocab,
        context=context,
        numel=tables * width + layers * block + 2 * width,
        block_numel=block,
        block_matrix_numel=matrices,
        token_bytes=18 * width + 4 * hidden,
    )


def _llama(config: Mapping[str, Any], count: Callable[..., int], family: str) -> HfShape:
    """Grouped queries, a gated MLP, norms of a weight alone, no table of positions."""
    width, layers, vocab = count("hidden_size"), count("num_hidden_layers"), count("vocab_size")
    heads, hidden = count("num_attention_heads"), count("intermediate_size")
    head = count("head_dim", width // heads)
    queries, keys = heads * head, count("num_key_value_heads", heads) * head
    matrices = 2 * width * (queries + keys) + 3 * width * hidden
    biases = queries + 2 * keys if family == "qwen2" or config.get("attention_bias") else 0
    biases += width if family == "llama" and config.get("attention_bias") else 0
    biases += 2 * hidden + width if family == "llama" and config.get("mlp_bias") else 0
    block = matrices + biases + 2 * width
    tables = vocab * (1 if config.get("tie_word_embeddings", False) else 2)
    return HfShape(
        layers=layers,
        width=width,
        heads=heads,
        vocab=vocab,
        context=count("max_position_embeddings"),
        numel=tables * width + layers * block + width,
        block_numel=block,
        block_matrix_numel=matrices,
        # Inputs of both norms and of what follows them, queries, keys and values, what attention gives; of the MLP
        # gate, its activation, up and their product.
        token_bytes=8 * width + 4 * queries + 4 * keys + 8 * hidden,
    )
