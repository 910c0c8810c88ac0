"""Claim: what an FSDP2 program saved with torch's distributed checkpoint becomes a checkpoint of ours, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from tests.claims.ranks import on_ranks
from tests.claims.training import OPTIMIZER, batch, gpt
from workers.checkpoint.foreign import adopt
from workers.checkpoint.store import LocalStore
from workers.checkpoint.tensors import reading
from workers.checkpoint.torch_dcp import from_dcp

STEPS = 2
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")


def _fsdp2(rank: int, world: int, folder: str) -> dict[str, Tensor]:
    """Plain torch, as its tutorial has it; the whole state under our names."""
    model = gpt()
    for block in model.blocks:  # type: ignore[union-attr]
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=OPTIMIZER.lr)
    for step in range(STEPS):
        model(batch(step, rank)).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optim": moments}, checkpoint_id=folder)
    # The head is the table of tokens under a second name.
    found = {f"master/{name}": _whole(values) for name, values in weights.items() if name != "head.weight"}
    for name, state in moments["state"].items():
        found |= {f"{kind}/{name}": _whole(state[kind]) for kind in ("exp_avg", "exp_avg_sq")}
    return found


def _whole(values: object) -> Tensor:
    assert isinstance(values, DTensor)
    return values.full_tensor().detach()


def test_every_element_and_every_age_comes_in(tmp_path: Path) -> None:
    expected, _ = on_ranks(2, _fsdp2, str(tmp_path / "theirs"))
    found, store = from_dcp(tmp_path / "theirs"), LocalStore(tmp_path / "ours")
    manifest = adopt(store, found, job="new", source="theirs")
    assert manifest.tensors.keys() == expected.keys()
    assert manifest.extra["ties"] == {"head.weight": "tokens.weight"}
    assert set(manifest.scalars["steps"].values()) == {STEPS}
    with reading(store, manifest) as reader:
        assert all(torch.equal(reader.read(name), values) for name, values in expected.items())
