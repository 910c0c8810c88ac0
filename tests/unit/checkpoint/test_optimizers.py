"""A checkpoint of one optimizer before an engine with another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.checkpoint.saves import save
from tests.unit.engine.groups import Seat, engine_at
from tests.unit.engine.test_engine_alone import net, train
from workers.checkpoint.errors import CheckpointMismatch
from workers.checkpoint.reader import read_into
from workers.checkpoint.store import LocalStore
from workers.engine.zero.engine import ZeroEngine
from workers.optimizers.config import OptimizerConfig


def engine(name: str, **options: Any) -> ZeroEngine:
    return engine_at(net(), Seat(), optimizer=OptimizerConfig(name=name, **options))


def test_another_optimizers_checkpoint_is_refused_with_what_each_side_lacks(tmp_path: Path) -> None:
    writer: Any = engine("adamw")
    train(writer, range(1))
    store = LocalStore(tmp_path)
    manifest = save(store, [writer], step=1)
    with pytest.raises(CheckpointMismatch) as caught:
        read_into(engine("muon", momentum=0.95), rank=0, manifest=manifest, store=store)
    differences = set(caught.value.differences)
    # Muon keeps one moment of the blocks' matrices; of all else the two have the same.
    of_matrices = {f"blocks.{number}.weight" for number in range(3)}
    assert differences == {
        *(f"momentum_buffer/{name} [7, 7] is not in the checkpoint" for name in of_matrices),
        *(f"{kind}/{name} is in the checkpoint alone" for name in of_matrices for kind in ("exp_avg", "exp_avg_sq")),
    }
    with pytest.raises(CheckpointMismatch, match=r"ema/first\.bias \[7\] is not in the checkpoint"):
        read_into(engine("adamw", ema_decay=0.9), rank=0, manifest=manifest, store=store)
