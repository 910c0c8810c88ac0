"""What any group saved, any other group reads, bit by bit; and so do two ordinary libraries."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from tests.fakes.memory_engine import whole_values
from tests.unit.checkpoint.saves import (
    BUFFERS,
    JOB,
    METAS,
    SCALARS,
    assert_same_state,
    engines,
    load,
    published,
    same,
    save,
    write,
)
from tests.unit.layout.shards import RULES, flat, replicated
from workers.checkpoint.catalogue import inspect
from workers.checkpoint.errors import CheckpointMismatch
from workers.checkpoint.parts import Part, parts_of
from workers.checkpoint.reader import read_into
from workers.checkpoint.store import LocalStore
from workers.checkpoint.writer import write_rank
from workers.engine.states import StateKind, TensorMeta
from workers.layout.interval import Interval


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "checkpoints")


@pytest.mark.parametrize("old", [1, 2, 3, 4])
@pytest.mark.parametrize("new", [1, 2, 3, 4])
def test_any_number_of_workers_reads_what_any_number_wrote(store: LocalStore, old: int, new: int) -> None:
    for writers in RULES:
        for readers in RULES:
            manifest = save(store, engines(old, writers, seed=1), step=5)
            group = engines(new, readers)
            load(store, group, manifest)
            assert_same_state(group, engines(new, readers, seed=1))


@settings(deadline=None, max_examples=25)
@given(
    numels=st.lists(st.integers(0, 300), min_size=1, max_size=5),
    old=st.integers(1, 4),
    new=st.integers(1, 4),
    rules=st.tuples(st.sampled_from(RULES), st.sampled_from(RULES)),
)
def test_any_shapes_come_back(tmp_path_factory: pytest.TempPathFactory, numels, old, new, rules) -> None:
    store = LocalStore(tmp_path_factory.mktemp("any"))
    metas = {f"t{i}": TensorMeta(shape=(numel,), dtype="float32") for i, numel in enumerate(numels)}
    manifest = save(store, engines(old, rules[0], seed=3, metas=metas), step=1)
    group = engines(new, rules[1], metas=metas)
    load(store, group, manifest)
    for mine, other in zip(group, engines(new, rules[1], seed=3, metas=metas), strict=True):
        assert all(same(mine.state()[key], values) for key, values in other.state().items())


def test_load_then_save_gives_the_same_content(store: LocalStore) -> None:
    first = save(store, engines(3, seed=1), step=5)
    group = engines(2)
    load(store, group, first)
    again = engines(3)
    load(store, again, save(store, group, step=6))
    assert_same_state(again, engines(3, seed=1))


@pytest.mark.parametrize("rule", RULES)
def test_each_element_is_written_once_however_many_hold_it(store: LocalStore, rule) -> None:
    group = engines(4, rule, seed=1)
    manifest = save(store, group, step=5)
    state = sum(meta.numel * (12 if meta.trainable else 4) for meta in METAS.values())
    assert sum(piece.numel * 4 for engine in group for _, piece in engine.exported) == state
    buffers = sum(buffer.numel() * buffer.itemsize for buffer in BUFFERS.values())
    headers = sum(_header_bytes(store, file) for file in manifest.files)
    assert manifest.size_bytes == state + buffers + headers


def test_safetensors_and_json_alone_are_enough_to_read_one(store: LocalStore, tmp_path: Path) -> None:
    save(store, engines(3, seed=1), step=120)
    folder = tmp_path / "checkpoints" / JOB / "step-00000120"
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, tensor in manifest["tensors"].items():
        flat_values = torch.empty(tensor["shape"], dtype=getattr(torch, tensor["dtype"])).reshape(-1)
        for piece in tensor["pieces"]:
            with safe_open(folder / piece["file"], framework="pt") as file:
                flat_values[slice(*piece["interval"])] = file.get_tensor(piece["key"]).reshape(-1)
        kind, _, plain = name.partition("/")
        expected = BUFFERS[plain] if kind == "buffer" else whole_values(StateKind(kind), plain, METAS[plain].numel, 1)
        assert same(flat_values, expected.reshape(-1))
    assert manifest["scalars"] == SCALARS
    assert (manifest["step"], manifest["samples"], manifest["format"]) == (120, 3840, 1)


def test_a_whole_tensor_has_its_own_name_and_shape_in_its_file(store: LocalStore, tmp_path: Path) -> None:
    (file,) = save(store, engines(1, seed=1), step=1).files
    with safe_open(tmp_path / "checkpoints" / JOB / "step-00000001" / file, framework="pt") as opened:
        assert {f"master/{name}" for name in METAS} <= set(opened.keys())
        assert opened.get_tensor("master/table").shape == (23, 7)
        assert opened.metadata()["step"] == "1"


def test_a_rank_reads_only_the_blocks_that_it_needs(tmp_path: Path) -> None:
    metas = {name: TensorMeta(shape=(5000,), dtype="float32") for name in "abcd"}
    store = CountingStore(tmp_path)
    manifest = save(store, engines(2, seed=1, metas=metas), step=1)
    reader = engines(4, metas=metas)[0]
    store.read_bytes = 0
    load(store, [reader], manifest)
    needed = 3 * 4 * 5000
    assert needed <= store.read_bytes < 1.2 * needed


def test_a_snapshot_is_saved_without_any_engine(store: LocalStore) -> None:
    """The parts of a step, copied, are still that step's when the engine has gone on."""
    group = engines(2, seed=1)
    snapshots = [[_frozen(part) for part in parts_of(engine, rank=rank)] for rank, engine in enumerate(group)]
    for engine in group:
        engine.fill(2)
    reports = [
        write_rank(store, job=JOB, step=5, attempt=1, rank=rank, world_size=2, parts=parts)
        for rank, parts in enumerate(snapshots)
    ]
    after = engines(2)
    load(store, after, published(store, reports, step=5))
    assert_same_state(after, engines(2, seed=1))


def test_parts_are_exported_one_at_a_time_and_only_when_written() -> None:
    (engine,) = engines(1, seed=1)
    parts = parts_of(engine, rank=0)
    assert engine.exported == []
    parts[0].values()
    assert len(engine.exported) == 1


def test_values_that_are_not_what_was_announced_are_refused(store: LocalStore) -> None:
    part = Part(name="master/a", shape=(3,), dtype="float32", interval=Interval(0, 3), values=lambda: torch.zeros(2))
    with pytest.raises(ValueError, match=r"master/a: 2 elements of torch\.float32 were given, 3 of float32"):
        write_rank(store, job=JOB, step=1, attempt=1, rank=0, world_size=1, parts=[part])
    assert store.names(f"{JOB}/step-00000001") == ()


def test_a_changed_model_is_refused_with_every_difference_and_nothing_is_loaded(store: LocalStore) -> None:
    manifest = save(store, engines(2, seed=1), step=5)
    metas = {
        **{name: meta for name, meta in METAS.items() if name != "bias"},
        "table": TensorMeta(shape=(7, 23), dtype="float32"),
        "extra": TensorMeta(shape=(2,), dtype="float32"),
    }
    group = engines(1, metas=metas)
    with pytest.raises(CheckpointMismatch) as caught:
        load(store, group, manifest)
    kinds = ("master", "exp_avg", "exp_avg_sq")
    assert sorted(caught.value.differences) == sorted(
        [f"{kind}/table is [23, 7] in the checkpoint and [7, 23] here" for kind in kinds]
        + [f"{kind}/extra [2] is not in the checkpoint" for kind in kinds]
        + [f"{kind}/bias is in the checkpoint alone" for kind in kinds]
    )
    assert all(values.isnan().all() for values in group[0].state().values())


def test_what_only_one_side_has_may_be_missing_on_demand_and_is_said(store: LocalStore) -> None:
    manifest = save(store, engines(2, seed=1), step=5)
    metas = {**METAS, "head": TensorMeta(shape=(4,), dtype="float32")}
    del metas["bias"]
    (engine,) = engines(1, seed=2, metas=metas)
    engine.load_scalars({"steps": {"table": 0, "head": 0}, "loss_scale": 1.0})
    said = read_into(engine, rank=0, manifest=manifest, store=store, allow_missing=True)
    kinds = ("master", "exp_avg", "exp_avg_sq")
    assert sorted(said) == sorted(
        [f"{kind}/head [4] is not in the checkpoint" for kind in kinds]
        + [f"{kind}/bias is in the checkpoint alone" for kind in kinds]
    )
    state = engine.state()
    assert same(state[StateKind.MASTER, "table"], whole_values(StateKind.MASTER, "table", METAS["table"].numel, 1))
    assert same(state[StateKind.MASTER, "head"], whole_values(StateKind.MASTER, "head", 4, 2))
    assert engine.scalars() == {"steps": {"table": 7, "bias": 6, "head": 0}, "loss_scale": 1024.0}


def test_the_weights_alone_go_into_any_optimizer_and_leave_its_state_and_counts(store: LocalStore) -> None:
    manifest = save(store, engines(2, seed=1), step=5)
    (engine,) = engines(1, seed=2, kinds=(StateKind.MASTER, StateKind.MOMENTUM))
    engine.load_scalars({"steps": {"table": 0}})
    assert read_into(engine, rank=0, manifest=manifest, store=store, weights_only=True) == ()
    state, numel = engine.state(), METAS["table"].numel
    assert same(state[StateKind.MASTER, "table"], whole_values(StateKind.MASTER, "table", numel, 1))
    assert same(state[StateKind.MOMENTUM, "table"], whole_values(StateKind.MOMENTUM, "table", numel, 2))
    assert same(engine.buffers()["mean"], engines(1, seed=1)[0].buffers()["mean"])
    assert engine.scalars() == {"steps": {"table": 0}}
    (other,) = engines(1, metas={name: meta for name, meta in METAS.items() if name != "bias"})
    with pytest.raises(CheckpointMismatch) as caught:
        read_into(other, rank=0, manifest=manifest, store=store, weights_only=True)
    assert caught.value.differences == ("master/bias is in the checkpoint alone",)


def test_another_shape_is_refused_even_where_tensors_may_be_missing(store: LocalStore) -> None:
    manifest = save(store, engines(1, seed=1), step=5)
    (engine,) = engines(1, metas={**METAS, "bias": TensorMeta(shape=(14,), dtype="float32")})
    with pytest.raises(CheckpointMismatch) as caught:
        read_into(engine, rank=0, manifest=manifest, store=store, allow_missing=True)
    assert caught.value.differences[0] == "master/bias is [13] in the checkpoint and [14] here"
    assert len(caught.value.differences) == 3


def test_another_optimizer_is_refused_by_its_kinds(store: LocalStore) -> None:
    manifest = save(store, engines(1, seed=1, kinds=(StateKind.MASTER, StateKind.EXP_AVG)), step=5)
    with pytest.raises(CheckpointMismatch, match=r"exp_avg_sq/table \[23, 7\] is not in the checkpoint"):
        load(store, engines(1), manifest)


def test_the_manifest_says_what_was_given(store: LocalStore) -> None:
    written = save(store, engines(3, replicated, seed=1), step=7, attempt=4)
    found = inspect(store, JOB, 7, verify_bytes=True)
    assert found == written
    assert (found.samples, found.attempt, found.world_size, found.extra) == (224, 4, 3, {"note": "é"})


def test_a_rank_with_nothing_to_write_still_reports(store: LocalStore) -> None:
    metas = {"one": TensorMeta(shape=(1,), dtype="float32")}
    reports = write(store, engines(3, flat, seed=1, metas=metas), step=1)
    assert [len(report.parts) for report in reports] == [3 + len(BUFFERS), 0, 0]


class CountingStore(LocalStore):
    """Counts the bytes that are read."""

    read_bytes = 0

    @contextmanager
    def open(self, path: str):
        with super().open(path) as source:
            yield CountingSource(source, self)


class CountingSource:
    def __init__(self, source, store: CountingStore) -> None:
        self.source, self.store, self.size_bytes = source, store, source.size_bytes

    def expect(self, ranges) -> None:
        self.source.expect(ranges)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        self.store.read_bytes += len(buffer)
        return self.source.read_into(offset, buffer)


def _header_bytes(store: LocalStore, file: str) -> int:
    with store.open(f"{JOB}/step-00000005/{file}") as source:
        length = bytearray(8)
        source.read_into(0, memoryview(length))
    return 8 + int.from_bytes(length, "little")


def _frozen(part: Part) -> Part:
    values = part.values().clone()
    return Part(name=part.name, shape=part.shape, dtype=part.dtype, interval=part.interval, values=lambda: values)
