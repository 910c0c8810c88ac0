"""What fits on an accelerator before one is rented, and how fast."""

from __future__ import annotations

from typing import Any

from service.domain.hardware import KNOWN
from service.domain.outlook import outlooks
from service.domain.parsing import parse_spec
from service.domain.plan import Outlook
from service.domain.planning import plan_spec, rank_bytes
from service.domain.presets import GptShape
from service.domain.profile import profile_of
from service.domain.spec import JobSpec
from service.domain.worker_memory import MARGIN

SEVEN_B = {"name": "gpt", "layers": 32, "width": 4096, "heads": 32, "vocab": 50304, "context": 2048}
LONG = {"batch_size": 64, "micro_batch_size": 1, "seq_len": 2048, "activation_checkpointing": True}


def spec_of(**fields: Any) -> JobSpec:
    return parse_spec({"model": SEVEN_B, "workers": 8, "training": LONG, **fields})


def seen(spec: JobSpec) -> dict[str, Outlook]:
    profile = profile_of(spec)
    assert profile is not None
    plan = plan_spec(spec, memory=None, profile=profile)
    return {each.accelerator: each for each in outlooks(spec, profile, plan.choices)}


def test_seven_billion_parameters_need_one_stage_or_another() -> None:
    found = seen(spec_of())
    assert {name: (found[name].fits, found[name].stage) for name in ("H100", "A100-40GB", "L4")} == {
        "H100": (True, 1),
        "A100-40GB": (True, 2),
        "L4": (True, 3),
    }
    alone = seen(spec_of(workers=1))
    told = [(alone[name].stage, alone[name].offload) for name in ("H200", "H100", "L4")]
    assert told == [(0, "none"), (0, "cpu"), (3, "cpu")]
    huge = seen(spec_of(workers=1, model={**SEVEN_B, "layers": 900, "width": 8192}))
    assert not huge["L4"].fits


def test_a_step_takes_the_operations_at_the_rate_that_is_counted_on() -> None:
    found = seen(spec_of())["H100"]
    assert found.step_s is not None
    profile = profile_of(spec_of())
    assert profile is not None
    assert profile.operations is not None
    least_s = 64 / 8 * profile.operations / (0.4 * 989e12)
    assert least_s < found.step_s < 1.05 * least_s, "to add gradients and to update is little beside it"
    assert found.traffic_hides
    assert found.hides_from_tokens == round(0.4 * 989e12 / 450e9)


def test_few_tokens_over_a_slow_link_are_decided_by_the_traffic() -> None:
    few = seen(spec_of(training={**LONG, "batch_size": 8, "seq_len": 64}))
    assert (few["L40S"].traffic_hides, few["H100"].traffic_hides) == (False, False)
    assert seen(spec_of())["L40S"].traffic_hides


def test_the_largest_model_fits_and_one_more_block_does_not() -> None:
    spec = spec_of()
    on = next(each for each in KNOWN if each.name == "A100-80GB")
    largest = seen(spec)["A100-80GB"].largest_numel
    block = GptShape(layers=1, width=4096, heads=32, vocab=50304, context=2048).block_numel
    layers = round((largest - (50304 + 2048 + 2) * 4096) / block)

    def needs(layers: int) -> int:
        deep = spec.model_copy(update={"model": parse_spec({"model": {**SEVEN_B, "layers": layers}}).model})
        profile = profile_of(deep)
        assert profile is not None
        kinds = rank_bytes(deep, profile, stage=3, workers=8)
        return sum(sum(tiers.values()) for tiers in kinds.values())

    assert needs(layers) <= 1.01 * MARGIN * on.memory_bytes
    assert needs(layers + 1) > 0.99 * MARGIN * on.memory_bytes


def test_times_are_told_for_rows_of_tokens_alone() -> None:
    spec = spec_of(data={"python": "mine:samples"})
    assert {each.step_s for each in seen(spec).values()} == {None}
