"""A rank of a new job fills its engine from another job's checkpoint, or says in words why it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.distributed import HashStore

from service.domain.spec import JobSpec
from service.domain.wire import Brief
from tests.fakes.memory_engine import MemoryEngine, whole_values
from tests.unit.checkpoint.saves import JOB, METAS, engines, same, save
from workers.checkpoint.store import LocalStore
from workers.engine.states import StateKind, TensorMeta
from workers.user_code import SpecError
from workers.worker.checkpoints import Checkpoints
from workers.worker.loop import Place
from workers.worker.messages import Started

ALONE = Place(generation=1, rank=0, world_size=1)


def started(folder: Path, engine: MemoryEngine, **origin: Any) -> Started | None:
    given = {"uri": str(folder / "there" / JOB), **origin}
    brief = Brief(
        job_id="new",
        attempt_id="a",
        attempt_number=1,
        spec=JobSpec.model_validate({"model": "gpt-tiny", "from": given}),
        workers=1,
        checkpoint_uri=str(folder / "here"),
        cache_folder="",
        log_folder="",
        ray_address="",
        namespace="",
        orphan_timeout_s=60.0,
    )
    return Checkpoints(brief).load_start(engine, place=ALONE, store=HashStore())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = LocalStore(tmp_path / "there")
    save(store, engines(2, seed=1), step=5)
    save(store, engines(2, seed=2), step=9)
    return tmp_path


@pytest.mark.parametrize(("origin", "step", "seed"), [({}, 9, 2), ({"step": 5}, 5, 1)])
def test_the_step_that_is_named_or_the_newest_is_taken(folder: Path, origin: Any, step: int, seed: int) -> None:
    (engine,) = engines(1)
    found = started(folder, engine, **origin)
    assert found is not None
    assert (found.step, found.missing) == (step, ())
    expected = whole_values(StateKind.EXP_AVG, "table", METAS["table"].numel, seed)
    assert same(engine.state()[StateKind.EXP_AVG, "table"], expected)


def test_what_is_missing_is_told(folder: Path) -> None:
    (engine,) = engines(1, metas={**METAS, "head": TensorMeta(shape=(4,), dtype="float32")})
    found = started(folder, engine, optimizer=False, allow_missing=True)
    assert found is not None
    assert found.missing == ("master/head [4] is not in the checkpoint",)


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        ({"step": 7}, "checkpoint of step 7 is not whole: there is no manifest.json"),
        ({"uri": "/nowhere/at-all"}, "no whole checkpoint is there"),
        ({"uri": "ftp://host/x"}, "ftp is no store"),
        ({"step": 5}, "exp_avg/head [4] is not in the checkpoint"),
    ],
)
def test_what_cannot_be_taken_fails_the_job_in_words(folder: Path, origin: Any, words: str) -> None:
    (engine,) = engines(1, metas={**METAS, "head": TensorMeta(shape=(4,), dtype="float32")})
    with pytest.raises(SpecError) as caught:
        started(folder, engine, **origin)
    assert words in str(caught.value)


def test_a_damaged_origin_names_its_file(folder: Path) -> None:
    (file,) = (folder / "there" / JOB / "step-00000009").glob("rank-00001-*")
    file.write_bytes(file.read_bytes()[:-1] + b"\x99")
    with pytest.raises(SpecError, match=file.name):
        started(folder, engines(1)[0], step=9)
