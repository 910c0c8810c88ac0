"""A Llama of a Hugging Face folder, each rank reading its own part, trains as in one process of plain torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from service.domain.spec import HfModel
from tests.claims.ranks import on_ranks, world_group
from tests.claims.training import plain_curve, train_step, zero_engine
from workers.models.registry import build, draw

STEPS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=61,
        max_position_embeddings=32,
        tie_word_embeddings=True,
    )
    where = tmp_path_factory.mktemp("llama")
    torch.manual_seed(2)
    AutoModelForCausalLM.from_config(config).save_pretrained(where, max_shard_size="8KB")
    return where


def _curves(rank: int, world: int, folder: Path) -> list[list[tuple[float, float]]]:
    curves = []
    for stage in (0, 1, 2, 3):
        drawn = draw(HfModel(hf=str(folder)), seed=1, seq_len=16)
        engine = zero_engine(drawn.model, world_group(), stage=stage)
        drawn.start(engine, rank=rank)
        curves.append([train_step(engine, step, rank=rank, world=world) for step in range(1, STEPS + 1)])
    return curves


def test_every_stage_follows_plain_torch(folder: Path) -> None:
    expected = torch.tensor(plain_curve(build(HfModel(hf=str(folder)), seed=1), STEPS))
    for curves in on_ranks(2, _curves, folder):
        for curve in curves:
            torch.testing.assert_close(torch.tensor(curve), expected, rtol=1e-5, atol=1e-6)
