"""Documents from outside: what is accepted, and what is said about what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.admission import admit
from service.domain.cluster import ClusterFacts, Node
from service.domain.errors import Problem, RequestRefused, SpecRefused
from service.domain.parsing import parse_bounds, parse_spec
from service.domain.spec import WorkerBounds
from service.domain.worker_memory import WorkerMemory


def refused(document: Any, *, size: int | None = None) -> dict[str, Problem]:
    with pytest.raises(SpecRefused) as caught:
        admit(parse_spec(document), size_of=lambda glob: size)
    return {problem.field: problem for problem in caught.value.problems}


def tiny(**fields: Any) -> dict[str, Any]:
    return {"model": "gpt-tiny", **fields}


def test_the_shortest_spec_is_a_model() -> None:
    spec = parse_spec({"model": "gpt-tiny"})
    assert (spec.stage, spec.workers, spec.training.seq_len) == (2, WorkerBounds(min=1, max=1), 256)


@pytest.mark.parametrize("document", [[], 1, "x", None, 1.5, True])
def test_what_is_not_an_object_is_refused_with_the_shortest_spec(document: object) -> None:
    assert "gpt-tiny" in refused(document)["spec"].fix


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({}, "model"),
        ({"model": 5}, "model"),
        ({"model": "nope"}, "model"),
        (tiny(stage=4), "stage"),
        (tiny(stage=-1), "stage"),
        (tiny(stage=True), "stage"),
        (tiny(workers=0), "workers.min"),
        (tiny(workers={"min": 3, "max": 2}), "workers"),
        (tiny(workers=10**9), "workers.max"),
        (tiny(workers="many"), "workers"),
        (tiny(training={"steps": -1}), "training.steps"),
        (tiny(training={"steps": 10**30}), "training.steps"),
        (tiny(training={"batch_size": 3, "micro_batch_size": 0}), "training.micro_batch_size"),
        (tiny(training={"batch_size": True}), "training.batch_size"),
        (tiny(training=None), "training"),
        (tiny(training={"optimizer": {"lr": float("nan")}}), "training.optimizer.lr"),
        (tiny(training={"optimizer": {"lr": float("-inf")}}), "training.optimizer.lr"),
        (tiny(training={"optimizer": {"lr": -1}}), "training.optimizer.lr"),
        (tiny(training={"optimizer": {"betas": [0.9]}}), "training.optimizer.betas.1"),
        (tiny(training={"optimizer": {"name": "adamax"}}), "training.optimizer.name"),
        (tiny(training={"optimizer": {"momentum": 0.9}}), "training.optimizer"),
        (tiny(training={"optimizer": {"name": "sgd", "nesterov": True}}), "training.optimizer"),
        (tiny(training={"optimizer": {"groups": [{"lr": 1}]}}), "training.optimizer.groups.0.match"),
        (tiny(training={"optimizer": {"groups": [{"match": []}]}}), "training.optimizer.groups.0.match"),
        (tiny(training={"optimizer": {"groups": [{"match": "*", "lr": -1}]}}), "training.optimizer.groups.0.lr"),
        (tiny(training={"optimizer": {"groups": "*.bias"}}), "training.optimizer.groups"),
        (tiny(training={"schedule": {"name": "step"}}), "training.schedule.name"),
        (tiny(training={"schedule": {"decay_steps": 5}}), "training.schedule"),
        (tiny(training={"ema_decay": 1.0}), "training.ema_decay"),
        (tiny(precision={"params": "fp16", "loss_scale": -1}), "precision.loss_scale.initial"),
        (tiny(precision={"params": "fp16", "loss_scale": {"initial": 2, "minimum": 4}}), "precision.loss_scale"),
        (tiny(precision={"params": "fp16", "loss_scale": "static"}), "precision.loss_scale"),
        (tiny(training={"seq_len": 10**7}), "training.seq_len"),
        (tiny(offload="gpu"), "offload.optimizer"),
        (tiny(offload={"ratio": 5}), "offload.ratio"),
        (tiny(precision="fp7"), "precision.params"),
        (tiny(name="../../etc"), "name"),
        (tiny(name="a" * 4000), "name"),
        (tiny(name="a\x00b"), "name"),
        (tiny(name="\ud800"), "name"),
        (tiny(priority=101), "priority"),
        (tiny(checkpoint={"every_steps": 0}), "checkpoint.every_steps"),
        ({"model": {"name": "gpt", "layers": 0}}, "model.layers"),
        ({"model": {"name": "gpt", "width": 7, "heads": 2}}, "model"),
        ({"model": {"python": "no colon"}}, "model.python"),
        (tiny(units=3), "units"),
        (tiny(units={"layers": []}), "units.layers"),
    ],
)
def test_an_impossible_value_is_refused_where_it_stands(document: Any, field: str) -> None:
    problem = refused(document)[field]
    assert problem.problem
    assert problem.fix
    assert len(json.dumps(problem.value, allow_nan=False)) < 300


@pytest.mark.parametrize(
    ("document", "field", "nearest"),
    [
        (tiny(stge=1), "stge", "stage"),
        (tiny(training={"step": 3}), "training.step", "steps"),
        (tiny(training={"optimizer": {"nme": "adamw"}}), "training.optimizer.nme", "name"),
        ({"model": {"name": "gpt", "layer": 2}}, "model.layer", "layers"),
        (tiny(data={"text": "x", "token": "y"}), "data.token", "tokens"),
        (tiny(units={"layer": ["Block"]}), "units.layer", "layers"),
        (tiny(precision={"parms": "bf16"}), "precision.parms", "params"),
        (tiny(training={"optimizer": {"groups": [{"match": "*", "lrr": 1}]}}), "training.optimizer.groups.0.lrr", "lr"),
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest_known_name(document: Any, field: str, nearest: str) -> None:
    problem = refused(document)[field]
    assert problem.problem == "unknown field"
    assert f"did you mean {nearest}?" in problem.fix


def test_all_problems_are_told_at_once() -> None:
    found = refused(tiny(stage=9, nonsense=1, workers={"min": 3, "max": 1}))
    values = {name: problem.value for name, problem in found.items()}
    assert values == {"stage": 9, "nonsense": 1, "workers": '{"min": 3, "max": 1}'}


def test_bottomless_and_endless_documents_are_refused() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = {"a": deep}
    (problem,) = refused(tiny(data={"python": "m:f", "args": deep})).values()
    assert problem.problem == "too large a document"
    (problem,) = refused(tiny(data={"python": "m:f", "args": {"x": [0] * 30_000}})).values()
    assert problem.problem == "too large a document"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "model",
    "data",
    "stage",
    "workers",
    "training",
    "precision",
    "offload",
    "units",
    "name",
    "checkpoint",
    "resources",
)


@given(document=st.dictionaries(st.sampled_from(FIELDS) | st.text(), json_values, max_size=5) | json_values)
def test_no_document_does_anything_but_pass_or_be_refused(document: Any) -> None:
    try:
        admit(parse_spec(document), size_of=None)
    except SpecRefused as error:
        json.dumps([(p.field, p.value, p.problem, p.fix) for p in error.problems], allow_nan=False).encode()


# ---- legal together --------------------------------------------------------------------------------------------------


def test_parameters_are_offloaded_at_stage_3_alone() -> None:
    problem = refused(tiny(stage=1, offload={"params": "cpu"}))["offload.params"]
    assert "only stage 3" in problem.problem


@pytest.mark.parametrize(
    ("offload", "field", "problem"),
    [
        ({"ratio": 0.5}, "offload.ratio", "nothing is offloaded"),
        ({"ratio": "auto"}, "offload.ratio", "nothing is offloaded"),
        ({"optimizer": "cpu", "path": "/tmp"}, "offload.path", "nothing is offloaded to nvme"),
    ],
)
def test_an_offload_that_moves_nothing_is_refused(offload: dict[str, Any], field: str, problem: str) -> None:
    assert refused(tiny(offload=offload))[field].problem == problem


@pytest.mark.parametrize("offload", ["cpu", "nvme", {"optimizer": "nvme", "ratio": "auto"}, {"optimizer": "cpu"}])
@pytest.mark.parametrize("stage", range(4))
def test_every_stage_takes_every_offload_of_the_optimizer(stage: int, offload: Any) -> None:
    admit(parse_spec(tiny(stage=stage, offload=offload)), size_of=None)


def test_a_disk_of_other_machines_has_to_be_named() -> None:
    spec = parse_spec(tiny(stage=3, offload={"params": "nvme"}))
    with pytest.raises(SpecRefused) as caught:
        admit(spec, size_of=None, names_paths=True)
    assert [problem.field for problem in caught.value.problems] == ["offload.path"]
    admit(parse_spec(tiny(offload={"optimizer": "nvme", "path": "/nvme"})), size_of=None, names_paths=True)


def test_a_job_that_exceeds_the_memory_it_asks_for_is_refused_with_what_fits() -> None:
    """58 million parameters: 16 bytes of each are 0.9 GB; on a disk rest all but gradients and parameters."""
    shape = {"name": "gpt", "layers": 8, "width": 768, "heads": 8}
    fields: dict[str, Any] = {
        "model": shape,
        "stage": 1,
        "precision": "fp32",
        "resources": {"memory_gb": 0.9},
        "training": {"batch_size": 1, "seq_len": 32},
    }
    memory = WorkerMemory(device_bytes=int(0.9 * 2**30))
    with pytest.raises(SpecRefused) as caught:
        admit(parse_spec(fields), size_of=None, memory=memory)
    (problem,) = caught.value.problems
    assert problem.field == "resources.memory_gb"
    assert "stage 1 on 1 worker needs 9" in problem.problem
    assert problem.fix == "raise it, or use stage: 0 with offload: nvme, which fits"
    admit(parse_spec({**fields, "offload": "nvme"}), size_of=None, memory=memory)
    admit(parse_spec({**fields, "resources": {}}), size_of=None, memory=memory)


def test_a_sequence_longer_than_the_context_is_refused() -> None:
    problem = refused(tiny(training={"seq_len": 257}))["training.seq_len"]
    assert problem.fix == "use at most 256"


def test_a_batch_is_a_multiple_of_the_micro_batch() -> None:
    assert "training.batch_size" in refused(tiny(training={"batch_size": 10, "micro_batch_size": 4}))


def test_a_glob_without_files_is_refused_where_the_workers_are_on_this_machine() -> None:
    assert "data.text" in refused(tiny(data={"text": "/nonexistent/*"}))
    admit(parse_spec(tiny(data={"text": "/nonexistent/*"})), size_of=None)


@pytest.mark.parametrize(
    ("data", "size", "field"),
    [
        ({"text": "/some/*.txt"}, 5, "data.text"),
        ({"text": "/some/*.txt"}, 256, "data.text"),
        ({"tokens": "/some.bin"}, 512, "data.tokens"),
        ({"tokens": "/some.bin", "dtype": "int64"}, 8 * 256, "data.tokens"),
        ({"tokens": "/some.bin"}, 1025, "data.dtype"),
    ],
)
def test_data_that_hold_no_whole_sample_are_refused(data: dict[str, Any], size: int, field: str) -> None:
    assert list(refused(tiny(data=data), size=size)) == [field]
    admit(parse_spec(tiny(data=data)), size_of=lambda glob: 8 * 257)


def test_a_model_s_folder_is_looked_for_where_workers_run_on_this_machine() -> None:
    folder = parse_spec({"model": {"hf": "/models/mine/"}})
    admit(folder, size_of={"/models/mine/config.json": 9}.__getitem__)
    with pytest.raises(SpecRefused) as caught:
        admit(folder, size_of=lambda path: None)
    assert [problem.field for problem in caught.value.problems] == ["model.hf"]
    admit(folder, size_of=None)
    admit(parse_spec({"model": {"hf": "gpt2"}}), size_of=lambda path: None)


def test_text_needs_a_vocabulary_of_bytes() -> None:
    assert "model.vocab" in refused({"model": {"name": "gpt", "vocab": 100}})


def test_a_gpu_is_refused_where_the_machine_is_known_to_have_none() -> None:
    wanting = parse_spec(tiny(resources={"gpu": 1, "accelerator": "H200"}))
    with pytest.raises(SpecRefused) as caught:
        admit(wanting, size_of=None, machine=machine(slots=4))
    assert [problem.field for problem in caught.value.problems] == ["resources.gpu", "resources.accelerator"]
    admit(wanting, size_of=None)
    admit(parse_spec(tiny(resources={"gpu": 0, "cpu": 1})), size_of=None, machine=machine(slots=4))


def test_units_of_a_class_that_the_model_has_not_are_refused_with_those_that_it_has() -> None:
    with pytest.raises(SpecRefused) as refused:
        admit(parse_spec(tiny(units={"layers": ["Block", "Nope"]})), size_of=None)
    (problem,) = refused.value.problems
    assert (problem.field, problem.value) == ("units.layers", "Nope")
    assert "Block" in problem.fix


def machine(*, slots: int) -> ClusterFacts:
    node = Node(id="local", address="127.0.0.1", alive=True, slots=slots, memory_bytes=16 << 30)
    return ClusterFacts(nodes=(node,), slot_kind="cpu", max_slots=slots, address="127.0.0.1")


@pytest.mark.parametrize(
    ("over", "field", "fix"),
    [
        ({"resources": {"cpu": 999}}, "resources.cpu", "at most 4"),
        ({"resources": {"memory_gb": 1000}}, "resources.memory_gb", "at most 16"),
        ({"model": {"name": "gpt", "width": 4608}, "stage": 2}, "workers.max", "stage: 0 with offload: nvme"),
        ({"model": {"name": "gpt", "layers": 999, "width": 6144}}, "workers.max", "take a smaller model"),
        ({"resources": {"memory_gb": 15}, "workers": 2}, "resources.memory_gb", "at most 8"),
    ],
)
def test_what_the_only_machine_will_never_have_is_refused_with_what_it_has(
    over: dict[str, Any], field: str, fix: str
) -> None:
    with pytest.raises(SpecRefused) as refused:
        admit(parse_spec(tiny(**over)), size_of=None, machine=machine(slots=4))
    (problem,) = refused.value.problems
    assert problem.field == field
    assert fix in problem.fix
    admit(parse_spec(tiny(**over)), size_of=None, machine=None)


# ---- scale -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        (3, (1, 3)),
        (1, (1, 1)),
        ({"min": 2, "max": 4}, (2, 4)),
        ({"max": 3}, (1, 3)),
        (WorkerBounds(min=2, max=2), (2, 2)),
    ],
)
def test_one_number_is_a_most_and_bounds_are_bounds(workers: Any, expected: tuple[int, int]) -> None:
    bounds = parse_bounds(workers, present=WorkerBounds(min=1, max=4))
    assert (bounds.min, bounds.max) == expected


@pytest.mark.parametrize("workers", [0, -1, True, "2", None, [], {}, {"min": 3, "max": 1}, {"least": 1}, 10**30, 1.5])
def test_a_bad_scale_is_refused(workers: Any) -> None:
    with pytest.raises(RequestRefused):
        parse_bounds(workers, present=WorkerBounds(min=1, max=4))


@pytest.mark.parametrize(
    ("document", "field", "form"),
    [
        ({"model": {"python": "a:b", "hf": "x"}}, "model.python", "{hf: ...}"),
        ({"model": {"name": "gpt", "hf": "x"}}, "model.name", "{hf: ...}"),
        ({"model": "gpt-tiny", "data": {"text": "a", "tokens": "b"}}, "data.text", "{tokens: ...}"),
    ],
)
def test_two_forms_in_one_are_told_apart(document: dict[str, object], field: str, form: str) -> None:
    with pytest.raises(SpecRefused) as caught:
        parse_spec(document)
    (problem,) = caught.value.problems
    assert (problem.field, problem.problem) == (field, f"it does not go with the form {form}")
    assert problem.fix.startswith("keep one of the two; write ")


@pytest.mark.parametrize("uri", ["/folder", "file:///folder", "s3://bucket/x", "gs://bucket", "az://container/x"])
def test_a_store_that_the_workers_can_use_is_admitted(uri: str) -> None:
    assert admit(parse_spec(tiny(checkpoint={"uri": uri})), size_of=None).spec.checkpoint.uri == uri


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("some/folder", "relative to nothing in particular"),
        ("ftp://host/x", "ftp is no store"),
        ("s3://key:hunter2@bucket/x", "holds credentials or options"),
        ("s3://bucket/x?secret=hunter2", "holds credentials or options"),
    ],
)
def test_a_store_that_they_cannot_use_is_refused_without_its_secrets(uri: str, problem: str) -> None:
    with pytest.raises(SpecRefused) as caught:
        admit(parse_spec(tiny(checkpoint={"uri": uri})), size_of=None)
    (found,) = caught.value.problems
    assert (found.field, found.problem) == ("checkpoint.uri", problem)
    assert "hunter2" not in str(found.value)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"engine": "fsdp", "stage": 1}, "stage"),
        ({"engine": "fsdp", "offload": "nvme"}, "offload.optimizer"),
        ({"engine": "fsdp", "offload": {"optimizer": "cpu", "ratio": 0.5}}, "offload.ratio"),
        ({"engine": "fsdp", "offload": {"optimizer": "cpu", "params": "none"}}, "offload.params"),
        ({"engine": "fsdp", "training": {"optimizer": {"name": "muon"}}}, "training.optimizer.name"),
    ],
)
def test_what_fsdp_has_not_is_refused_with_a_way_out(fields: dict[str, object], field: str) -> None:
    problem = refused(tiny(**fields))[field]
    assert "FSDP2" in problem.problem
    assert "zero" in problem.fix


def test_fsdp_takes_its_own_names_of_stages_and_the_offload_of_everything() -> None:
    spec = parse_spec(tiny(engine="fsdp", stage="SHARD_GRAD_OP", offload="cpu"))
    assert (spec.stage, spec.offload.optimizer) == (2, "cpu")
    hybrid = parse_spec(tiny(engine="fsdp", stage="HYBRID_SHARD", shard_size=2))
    assert (hybrid.stage, hybrid.shard_size) == (3, 2)
    assert parse_spec(hybrid.model_dump(mode="json", by_alias=True)) == hybrid


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"engine": "fsdp", "stage": "HYBRID_SHARD"}, "HYBRID_SHARD needs a number"),
        ({"engine": "fsdp", "stage": 3, "shard_size": 0}, "greater than or equal to 1"),
        ({"engine": "zero", "stage": "HYBRID_SHARD", "shard_size": 2}, "ZeRO shards over all workers"),
        ({"engine": "fsdp", "stage": "NO_SHARD", "shard_size": 2}, "stage 0 shards nothing"),
    ],
)
def test_a_hybrid_without_a_size_or_without_shards_is_refused(fields: dict[str, object], problem: str) -> None:
    assert problem in refused(tiny(**fields))["shard_size"].problem
