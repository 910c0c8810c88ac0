"""Folders that transformers wrote train here: their weights, piece by piece, or random ones; what is amiss is named."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config

from service.domain.hf_shape import shape_in
from service.domain.spec import HfModel
from workers.engine.units import UnitRule, group_units
from workers.layout.interval import Interval
from workers.models.registry import build, draw
from workers.user_code import SpecError

GPT2 = GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=300, n_positions=32, bos_token_id=None, eos_token_id=None)
LLAMA = LlamaConfig(
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=257,
    max_position_embeddings=64,
)


def saved(config: PretrainedConfig, folder: Path, *, shard: str = "1GB") -> nn.Module:
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder, max_shard_size=shard)
    return model


SMALL = {key: getattr(LLAMA, key) for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size")}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
FAMILIES = {
    "gpt2": GPT2,
    "gpt2_untied_with_a_narrow_mlp": GPT2Config(
        **{**GPT2.to_dict(), "tie_word_embeddings": False, "n_inner": 20, "model_type": "gpt2"}
    ),
    "llama": LLAMA,
    "llama_tied_with_biases": LlamaConfig(
        **SMALL, **HEADS, tie_word_embeddings=True, attention_bias=True, mlp_bias=True, head_dim=6
    ),
    "mistral": MistralConfig(**SMALL, **HEADS),
    "qwen2": Qwen2Config(**SMALL, **HEADS),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_planner_counts_the_parameters_that_the_library_makes(family: str) -> None:
    config = FAMILIES[family]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shape = shape_in(json.loads(config.to_json_string(use_diff=False)))
    assert shape is not None
    _root, *blocks = group_units(model, UnitRule())
    assert shape.numel == sum(param.numel() for param in model.parameters())
    assert (len(blocks), shape.block_numel) == (shape.layers, sum(p.numel() for p in blocks[0].params.values()))
    assert shape.block_matrix_numel == sum(p.numel() for p in blocks[0].params.values() if p.ndim == 2)
    assert shape.context == 32 if "gpt2" in family else shape.context == 64


@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
@pytest.mark.parametrize("shard", ["1GB", "10KB"])
def test_a_folder_gives_its_weights_piece_by_piece(config: PretrainedConfig, shard: str, tmp_path: Path) -> None:
    theirs = saved(config, tmp_path, shard=shard)
    assert len(list(tmp_path.glob("*.safetensors"))) == 1 or shard == "10KB"
    drawn = draw(HfModel(hf=str(tmp_path)), seed=1, seq_len=16)
    wanted = dict(theirs.named_parameters())
    assert drawn.hollow == wanted.keys()
    for name, param in wanted.items():
        flat = param.detach().reshape(-1)
        for start, stop in ((0, flat.numel()), (5, min(23, flat.numel())), (flat.numel() - 1, flat.numel())):
            assert torch.equal(drawn.read(name, Interval(start, stop)), flat[start:stop]), name


@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_its_loss_is_that_of_the_library_on_the_next_token(config: PretrainedConfig, tmp_path: Path) -> None:
    theirs = saved(config, tmp_path).eval()
    ours = build(HfModel(hf=str(tmp_path)), seed=1, seq_len=16).eval()
    tokens = torch.randint(257, (3, 17), generator=torch.Generator().manual_seed(1))
    # The library shifts labels itself: the last token of the batch is a label alone.
    expected = theirs(input_ids=tokens, labels=tokens).loss
    torch.testing.assert_close(ours(tokens), expected, rtol=1e-6, atol=1e-6)
    ours(tokens).backward()
    assert all(param.grad is not None for param in ours.parameters())


def test_a_tied_head_stays_tied_and_is_read_once(tmp_path: Path) -> None:
    saved(GPT2, tmp_path)
    ours = build(HfModel(hf=str(tmp_path)), seed=1)
    assert ours.get_parameter("lm_head.weight") is ours.get_parameter("transformer.wte.weight")


def test_weights_of_the_inner_model_alone_are_found(tmp_path: Path) -> None:
    theirs = saved(GPT2, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({name.removeprefix("transformer."): t for name, t in tensors.items()}, tmp_path / "model.safetensors")
    drawn = draw(HfModel(hf=str(tmp_path)), seed=1, seq_len=16)
    bias = theirs.get_parameter("transformer.h.1.attn.c_attn.bias")
    assert torch.equal(drawn.read("transformer.h.1.attn.c_attn.bias", Interval(0, 48)), bias)


@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_a_config_alone_starts_from_the_library_s_own_random_values(
    config: PretrainedConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config.save_pretrained(tmp_path)
    with caplog.at_level(logging.WARNING):
        drawn = draw(HfModel(hf=str(tmp_path)), seed=7, seq_len=16)
    assert "random values" in caplog.text
    assert "built whole" not in caplog.text
    torch.manual_seed(7)
    for name, param in AutoModelForCausalLM.from_config(config, dtype=torch.float32).named_parameters():
        assert torch.equal(drawn.read(name, Interval(0, param.numel())), param.detach().reshape(-1)), name


def test_buffers_have_memory_and_values(tmp_path: Path) -> None:
    theirs = saved(LLAMA, tmp_path)
    drawn = draw(HfModel(hf=str(tmp_path)), seed=1, seq_len=16)
    for name, buffer in theirs.named_buffers():
        assert torch.equal(drawn.model.get_buffer(name), buffer), name


def _refusal(folder: Path | str, *, seq_len: int = 16) -> str:
    with pytest.raises(SpecError) as refused:
        draw(HfModel(hf=str(folder)), seed=1, seq_len=seq_len)
    return str(refused.value)


def test_what_is_amiss_in_a_folder_is_named(tmp_path: Path) -> None:
    assert "no such folder" in _refusal("/nowhere/at/all")
    (tmp_path / "bare").mkdir()
    assert "its config cannot be read" in _refusal(tmp_path / "bare")
    whole = tmp_path / "whole"
    saved(GPT2, whole)
    assert "longer than the model's context 32" in _refusal(whole, seq_len=33)
    tensors = load_file(whole / "model.safetensors")
    save_file({n: t for n, t in tensors.items() if "c_proj" not in n}, whole / "model.safetensors")
    assert "lack transformer.h.0.attn.c_proj.bias" in _refusal(whole)
    save_file(tensors, whole / "model.safetensors")
    config = json.loads((whole / "config.json").read_text())
    (whole / "config.json").write_text(json.dumps(config | {"n_positions": 40}))
    assert "has shape [32, 16], its config wants [40, 16]" in _refusal(whole)
