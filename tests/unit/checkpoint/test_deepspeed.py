"""DeepSpeed's ZeRO checkpoints come in: every element of every kind, whatever stage and number of ranks wrote them."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
import torch

from tests.fakes.memory_engine import MemoryEngine
from tests.unit.checkpoint.test_export import run
from tests.unit.checkpoint.zero_files import KINDS, SHAPES, STEP, lay_out, whole
from tests.unit.layout.shards import flat
from tests.unit.worker.test_start_from import started
from workers.checkpoint.catalogue import inspect
from workers.checkpoint.deepspeed import from_deepspeed
from workers.checkpoint.foreign import ImportRefused, adopt
from workers.checkpoint.reader import read_into
from workers.checkpoint.store import LocalStore
from workers.checkpoint.tensors import reading
from workers.engine.states import TensorMeta

SUB_GROUPS = (("table",), ("weight", "nothing", "bias"), ("scale",))


@pytest.mark.parametrize(("stage", "world"), [(1, 2), (2, 1), (2, 3), (3, 1), (3, 2), (3, 4)])
def test_every_element_comes_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: int, world: int) -> None:
    source = lay_out(tmp_path / "ds", stage=stage, world=world, monkeypatch=monkeypatch, sub_groups=SUB_GROUPS)
    found, store = from_deepspeed(source), LocalStore(tmp_path / "store")
    manifest = adopt(store, found, job="new", source="ds")
    expected = {f"master/{name}": whole("master", name) for name in SHAPES}
    expected |= {f"{kind}/{name}": whole(kind, name) for kind in KINDS for name in SHAPES if name != "frozen"}
    expected |= {"buffer/seen": torch.tensor(2**40 + 1), "buffer/mean": torch.arange(3, dtype=torch.bfloat16)}
    with reading(store, manifest) as reader:
        assert manifest.tensors.keys() == expected.keys()
        assert all(torch.equal(reader.read(name), values) for name, values in expected.items())
    assert found.steps == {name: STEP for name in SHAPES if name != "frozen"}
    assert (found.ties, found.unused) == ({"head": "table"}, ("lr_scheduler",))
    assert manifest.scalars["loss_scale"]["value"] == 4096.0


def test_the_command_asks_for_trust_and_its_checkpoint_goes_into_a_group_of_another_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = lay_out(tmp_path / "ds", stage=2, world=3, monkeypatch=monkeypatch)
    words = ("import-deepspeed", tmp_path / "store", "new", source)
    status, answer = run(capsys, monkeypatch, *words)
    assert (status, "say --trust" in answer["detail"], (tmp_path / "store").exists()) == (1, True, False)
    assert run(capsys, monkeypatch, *words, "--trust")[0] == 0
    store = LocalStore(tmp_path / "store")
    metas = {name: TensorMeta(shape=SHAPES[name], dtype="float32") for name in ("table", "weight", "bias", "scale")}
    for rank in range(2):
        engine = MemoryEngine(metas, rule=flat, rank=rank, world_size=2)
        read_into(engine, rank=rank, manifest=inspect(store, "new", 0), store=store, allow_missing=True)
        for kind, piece in itertools.product(engine.kinds(), engine.layout().of(rank)):
            values = whole(kind, piece.tensor).reshape(-1)[piece.interval.start : piece.interval.stop]
            assert torch.equal(engine.export(kind, piece), values), (kind, piece)


def test_a_job_starts_from_what_came_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = from_deepspeed(lay_out(tmp_path / "ds", stage=3, world=2, monkeypatch=monkeypatch))
    adopt(LocalStore(tmp_path / "store"), found, job="new", source="ds")
    metas = {
        name: TensorMeta(shape=shape, dtype="float32", trainable=name != "frozen") for name, shape in SHAPES.items()
    }
    buffers = {"seen": torch.tensor(0), "mean": torch.zeros(3, dtype=torch.bfloat16)}
    engine = MemoryEngine(metas, rule=flat, rank=0, world_size=1, buffers=buffers)
    answer = started(tmp_path, engine, uri=str(tmp_path / "store" / "new"))
    assert answer is not None
    assert (answer.step, answer.missing) == (0, ())
    assert engine.scalars()["steps"]["table"] == STEP
    assert int(engine.buffers()["seen"]) == 2**40 + 1


def test_other_objects_are_left_out_and_no_code_of_a_file_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = lay_out(tmp_path / "ds", stage=2, world=2, monkeypatch=monkeypatch)
    monkeypatch.delitem(sys.modules, "deepspeed_of_old")
    found = from_deepspeed(source)
    assert found.loss_scale == 4096.0, "of the stand-in for an object whose class is not there"
    assert source.is_dir(), "what a file asked for was not done"


def test_what_is_not_whole_or_of_another_kind_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = lay_out(tmp_path / "ds", stage=2, world=3, monkeypatch=monkeypatch)
    place = source / "global_step9"
    last = place / "zero_pp_rank_2_mp_rank_00_optim_states.pt"
    data = last.read_bytes()
    for refused, spoil in {
        r"rank_2.*cannot be read": lambda: last.write_bytes(data[:100]),
        r"files of 2 ranks, 3 wrote it": last.unlink,
        r"lacks the optimizer states of rank 1": lambda: (
            last.write_bytes(data),
            (place / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink(),
        ),
        r"layer_00.*pipelines and experts": (place / "layer_00-model_states.pt").touch,
    }.items():
        spoil()
        with pytest.raises(ImportRefused, match=refused):
            from_deepspeed(source)
    with pytest.raises(ImportRefused, match="no ZeRO checkpoint"):
        from_deepspeed(tmp_path / "ds", tag=".")
    with pytest.raises(ImportRefused, match="name a tag"):
        from_deepspeed(source, tag="other")
