"""How much memory a worker has: asked of the cluster, of workers that were there, or known by a name."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.admission import admit
from service.domain.cluster import ClusterFacts, Node, SlotKind
from service.domain.errors import SpecRefused
from service.domain.hardware import KNOWN, memory_named
from service.domain.parsing import parse
from service.domain.spec import JobSpec, Resources
from service.domain.worker_memory import WorkerMemory, memory_of_worker
from tests.fakes.control_plane import ControlPlane

GB = 10**9
SEVEN_B = {"name": "gpt", "layers": 32, "width": 4096, "heads": 32, "vocab": 50304, "context": 2048}
LONG = {"batch_size": 64, "micro_batch_size": 1, "seq_len": 2048, "activation_checkpointing": True}


def node(slots: int, accelerator: str | None = None, *, host_gb: int | None = None, alive: bool = True) -> Node:
    return Node(
        id="n",
        address="a",
        alive=alive,
        slots=slots,
        memory_bytes=None if host_gb is None else host_gb * GB,
        accelerator=accelerator,
        accelerator_memory_bytes=memory_named(accelerator),
    )


def found(kind: SlotKind | None, *nodes: Node, reported: int | None = None, **resources: Any) -> Any:
    """(device, host) in GB."""
    facts = None if kind is None else ClusterFacts(nodes=nodes, slot_kind=kind, max_slots=8, address="")
    memory = memory_of_worker(Resources(**resources), facts, reported_bytes=reported)
    if memory is None:
        return None
    host = None if memory.host_bytes is None else memory.host_bytes / GB
    return (memory.device_bytes / GB, host) if memory.apart else memory.device_bytes / GB


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("NVIDIA A100-SXM4-80GB", 80),
        ("A100-40G", 40),
        ("A100", 40),
        ("NVIDIA H200", 141),
        ("H100", 80),
        ("NVIDIA L40S", 48),
        ("L4", 24),
        ("NVIDIA GeForce RTX 4090", 24),
        ("AMD-Instinct-MI300X-OAM", 192),
        ("TPU-V4", None),
        ("M4", None),
        (None, None),
    ],
)
def test_an_accelerator_is_known_by_its_name(name: str | None, size: int | None) -> None:
    assert memory_named(name) == (None if size is None else size * GB)


def test_the_accelerators_of_the_outlooks_have_the_memory_of_their_names() -> None:
    assert {each.name: memory_named(each.name) for each in KNOWN} == {each.name: each.memory_bytes for each in KNOWN}


def test_a_worker_on_cpus_has_the_share_of_its_slots_and_no_more_than_it_asked_for() -> None:
    nodes = (node(4, host_gb=16), node(2, host_gb=6), node(1, host_gb=1, alive=False), node(8))
    assert found("cpu", *nodes) == 3
    assert found("cpu", *nodes, cpu=2) == 6
    assert found("cpu", *nodes, memory_gb=1) == pytest.approx(2**30 / GB)
    assert found("cpu", node(8)) is None
    assert found(None, memory_gb=1) == pytest.approx(2**30 / GB)
    assert found(None) is None


def test_a_worker_on_a_gpu_has_that_of_the_smallest_accelerator_it_may_find_and_a_share_of_the_host() -> None:
    mixed = (node(0, host_gb=4), node(8, "H100", host_gb=800), node(4, "L4", host_gb=200))
    assert found("gpu", *mixed) == (24, 50)
    assert found("gpu", *mixed, accelerator="H100") == (80, 100)
    assert found("gpu", *mixed, accelerator="H100", gpu=0.5) == (40, 100)
    assert found("gpu", *mixed, accelerator="H100", gpu=2) == (80, 200)
    assert found("gpu", *mixed, cpu=4) is None, "it computes on CPUs, of which nobody counts the slots"
    assert found("gpu", node(4, "of tomorrow"), node(8, "H100")) is None


def test_before_there_is_a_node_the_accelerator_that_the_spec_names_is_planned_for() -> None:
    assert found("gpu", accelerator="A100-80G") == (80, None)
    assert found("gpu") is None
    assert found(None, accelerator="H200") == (141, None)
    assert found("cpu", node(4, host_gb=16), gpu=1, accelerator="L4") == (24, None)


def test_what_workers_reported_is_surer_than_a_name_where_nodes_are_of_one_kind() -> None:
    assert found("gpu", node(8, "A100"), node(8, "A100"), reported=80 * GB) == (80, None)
    assert found("gpu", node(8), reported=30 * GB) == (30, None)
    assert found("gpu", node(8, "A100"), node(8, "L4"), reported=80 * GB) == (24, None)


# ---- what is chosen and refused by it --------------------------------------------------------------------------------


def decided(device_gb: int, *, host_gb: int | None = None, **fields: Any) -> JobSpec:
    parsed = parse({"model": SEVEN_B, "workers": 8, "training": LONG, **fields})
    host = None if host_gb is None else host_gb * GB
    memory = WorkerMemory(device_bytes=device_gb * GB, apart=True, host_bytes=host)
    return admit(parsed.spec, size_of=None, memory=memory, wishes=parsed.wishes).spec


def chosen(device_gb: int, **fields: Any) -> tuple[Any, str]:
    spec = decided(device_gb, stage="auto", offload="auto", **fields)
    return spec.stage, spec.offload.optimizer


def test_auto_fills_the_device_first_then_host_memory_and_then_a_disk() -> None:
    assert [chosen(size) for size in (80, 40, 24)] == [(1, "none"), (2, "none"), (3, "none")]
    alone = {"workers": 1}
    assert chosen(80, host_gb=400, **alone) == (0, "cpu")
    assert chosen(80, host_gb=64, **alone) == (0, "nvme")
    assert chosen(80, **alone) == (0, "cpu"), "of host memory nothing is known"


def test_what_fits_no_accelerator_of_a_worker_is_refused_with_what_would() -> None:
    with pytest.raises(SpecRefused) as caught:
        decided(24, stage=1)
    (problem,) = caught.value.problems
    assert problem.field == "resources.accelerator"
    assert "bytes of its accelerator's memory per worker, 21600000000 can be used" in problem.problem
    assert problem.fix.startswith("use stage: 3 with offload: none, which fits")
    with pytest.raises(SpecRefused) as caught:
        decided(24, stage=1, offload="cpu", workers=1, host_gb=64)
    assert "bytes of host memory per worker" in caught.value.problems[0].problem


async def test_a_cluster_of_known_gpus_plans_chooses_and_refuses(plane: ControlPlane) -> None:
    plane.capacity.kind, plane.capacity.accelerator = "gpu", "L4"
    document = {"model": SEVEN_B, "workers": 4, "training": LONG, "stage": 0}
    plan = await plane.plans.plan(document, may_run_code=False)
    assert plan.capacity_bytes == 24 * GB
    assert {choice.fits for choice in plan.choices} == {True, False}
    with pytest.raises(SpecRefused):
        await plane.jobs.submit(document)
    done = await plane.jobs.submit({**document, "stage": "auto", "offload": "auto"})
    assert done.job is not None
    assert (done.job.spec.stage, done.job.spec.offload.optimizer) == (2, "cpu")
