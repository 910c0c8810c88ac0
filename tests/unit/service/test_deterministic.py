"""What the deterministic mode is promised for; the rest is refused."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.admission import admit
from service.domain.batching import rounds, share
from service.domain.errors import SpecRefused
from service.domain.parsing import parse_spec
from service.domain.planning import plan_spec

EXACT = {"model": "gpt-tiny", "deterministic": True, "precision": "fp32"}


def test_a_plain_job_in_fp32_is_taken() -> None:
    assert admit(parse_spec(EXACT), size_of=None).spec.deterministic


@pytest.mark.parametrize(
    "fields",
    [
        {"engine": "fsdp"},
        {"precision": "bf16"},
        {"resources": {"gpu": 1}},
        {"training": {"optimizer": {"name": "muon"}}},
    ],
)
def test_what_would_break_the_promise_is_refused_with_a_way_out(fields: dict[str, Any]) -> None:
    with pytest.raises(SpecRefused) as refused:
        admit(parse_spec({**EXACT, **fields}), size_of=None)
    assert [problem.field for problem in refused.value.problems] == ["deterministic"]
    assert "leave it out" in refused.value.problems[0].fix


def test_the_plan_has_the_traffic_of_the_mode() -> None:
    spec = parse_spec({**EXACT, "workers": 2, "training": {"batch_size": 24, "micro_batch_size": 4}})
    plan = plan_spec(spec, memory=None)
    moved = {choice.stage: choice.elements_per_step for choice in plan.choices if choice.offload == "none"}
    assert [moved[stage] for stage in range(4)] == [4 * plan.numel] * 3 + [9 * plan.numel]


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 8])
def test_dealt_micro_batches_follow_each_other_round_by_round(world_size: int) -> None:
    count = 7
    taken = share(count, world_size=world_size, dealt=True)
    played = [mine[turn] for turn in range(rounds(count, world_size=world_size)) for mine in taken if turn < len(mine)]
    assert played == list(range(count))
