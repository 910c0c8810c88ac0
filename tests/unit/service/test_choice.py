"""What `auto` becomes: always something that fits, the fastest of it, with the reason; and the nearest that would."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.admission import Decision, admit
from service.domain.choice import Room, choice_of, nearest
from service.domain.errors import SpecRefused
from service.domain.parsing import parse
from service.domain.profile import profile_of
from service.domain.spec import JobSpec
from service.domain.worker_memory import MARGIN, WorkerMemory

SPEED = [(offload, stage) for offload in ("none", "cpu", "nvme") for stage in (0, 1, 2, 3)]


def decided(*, capacity: int | None = None, gpu: bool = False, remote: bool = False, **fields: Any) -> Decision:
    parsed = parse({"model": "gpt2", **fields})
    memory = None if capacity is None else WorkerMemory(device_bytes=capacity, apart=gpu)
    return admit(parsed.spec, size_of=None, memory=memory, wishes=parsed.wishes, names_paths=remote)


def needs(spec: JobSpec, **fields: Any) -> int:
    """Bytes in the memory of a worker on CPUs."""
    choice = choice_of(spec, Room(profile_of=profile_of, memory=None))
    assert choice is not None
    return sum(size for tiers in choice.bytes_by_kind.values() for tier, size in tiers.items() if tier != "nvme")


@given(
    capacity=st.integers(10**8, 10**10),
    workers=st.integers(1, 8),
    batch=st.integers(1, 64),
    wish=st.sampled_from([{"stage": "auto"}, {"offload": "auto"}, {"stage": "auto", "offload": "auto"}]),
)
def test_what_is_chosen_fits_and_nothing_faster_does(
    capacity: int, workers: int, batch: int, wish: dict[str, str]
) -> None:
    decision = decided(capacity=capacity, workers=workers, training={"batch_size": batch}, **wish)
    spec = decision.spec
    chosen = (spec.offload.optimizer, spec.stage)
    budget = int(MARGIN * capacity)
    allowed = [pair for pair in SPEED if pair[1] in ((0, 3) if workers == 1 else (1, 2, 3))]
    if "stage" not in wish:
        allowed = [pair for pair in SPEED if pair[1] == 2]
    if "offload" not in wish:
        allowed = [pair for pair in allowed if pair[0] == "none"]
    fitting = [pair for pair in allowed if needs(at(spec, *pair)) <= budget]
    assert set(decision.report) == set(wish)
    if fitting:
        assert chosen == fitting[0]
        assert all("nothing fits" not in why for why in decision.report.values())
    else:
        assert all(why.startswith("nothing fits") for why in decision.report.values())


def at(spec: JobSpec, offload: str, stage: int) -> JobSpec:
    return parse({**spec.model_dump(), "offload": offload, "stage": stage}).spec


def test_stage_auto_is_resolved_and_the_reason_told() -> None:
    decision = decided(stage="auto", workers=2)
    assert decision.spec.stage == 1
    assert "stage 1" in decision.report["stage"]
    assert decided(stage="auto").spec.stage == 0


def test_without_a_known_memory_nothing_is_offloaded() -> None:
    decision = decided(stage="auto", offload="auto", workers=4)
    assert (decision.spec.stage, decision.spec.offload.optimizer) == (1, "none")
    assert "not known" in decision.report["offload"]


def test_on_other_machines_a_disk_is_chosen_only_where_its_folder_is_given() -> None:
    room: dict[str, Any] = {"stage": "auto", "capacity": 500_000_000, "workers": 2, "remote": True}
    assert decided(offload="auto", **room).spec.offload.optimizer != "nvme"
    chosen = decided(offload={"optimizer": "auto", "path": "/scratch"}, **room).spec.offload
    assert (chosen.optimizer, chosen.path) == ("nvme", "/scratch")


def test_the_micro_batch_is_the_largest_that_fits_the_fewest_workers_and_leaves_each_of_the_most_one() -> None:
    fields = {"workers": {"min": 2, "max": 4}, "stage": 2}
    roomy = decided(capacity=10**12, training={"batch_size": 96, "micro_batch_size": "auto"}, **fields)
    assert roomy.spec.training.micro_batch_size == 24
    tight = decided(capacity=5 * 10**9, training={"batch_size": 96, "micro_batch_size": "auto"}, **fields)
    size = tight.spec.training.micro_batch_size
    assert 1 < size < 24
    alone = {"model": "gpt2", "workers": 2, "stage": 2}
    larger = next(each for each in range(size + 1, 25) if 96 % each == 0)
    budget = MARGIN * 5 * 10**9
    assert needs(parse({**alone, "training": {"batch_size": 96, "micro_batch_size": size}}).spec) <= budget
    assert needs(parse({**alone, "training": {"batch_size": 96, "micro_batch_size": larger}}).spec) > budget
    assert tight.report["training.micro_batch_size"].startswith(f"{size}: the largest that fits on 2 workers")
    unknown = decided(training={"batch_size": 96, "micro_batch_size": "auto"})
    assert unknown.spec.training.micro_batch_size == 4


@pytest.mark.parametrize(
    ("fields", "fix"),
    [
        ({"stage": 0, "workers": 4}, "stage: 1 with offload: none"),
        (
            {"stage": 1, "offload": "nvme", "workers": 4, "gb": 1.6},
            "training.micro_batch_size: 2, stage: 2 with offload: nvme",
        ),
        ({"stage": 3, "workers": 1, "gb": 0.2, "training": {"batch_size": 1}}, "take a smaller model"),
    ],
)
def test_a_refusal_for_memory_names_the_nearest_that_fits(fields: dict[str, Any], fix: str) -> None:
    asked = {**fields}
    memory_gb = asked.pop("gb", 1.9)
    with pytest.raises(SpecRefused) as caught:
        decided(capacity=int(memory_gb * 2**30), resources={"memory_gb": memory_gb}, **asked)
    (problem,) = caught.value.problems
    assert problem.field == "resources.memory_gb"
    assert fix in problem.fix


def test_more_workers_are_the_last_thing_to_ask_for() -> None:
    spec = parse({"model": "gpt-medium", "engine": "fsdp", "stage": 3, "training": {"batch_size": 1}}).spec
    room = Room(profile_of=profile_of, memory=WorkerMemory(device_bytes=int(needs(spec) / MARGIN * 0.8)))
    assert nearest(spec, room).startswith("use workers: 2, stage: ")
