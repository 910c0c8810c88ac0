"""How long a step takes: what the busiest rank computes, what it sends, and the update."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from service.domain.choice import Room, choice_of
from service.domain.hardware import Rates
from service.domain.parsing import parse_spec
from service.domain.profile import Profile, profile_of
from service.domain.spec import JobSpec
from service.domain.speed import StepTime, step_time

RATES = Rates(operations=1e12, link=1e9, host=2e9, memory=1e10, host_memory=5e9, disk=1e8)
TRAINING = {"batch_size": 8, "micro_batch_size": 2, "seq_len": 128}


def spec_of(**fields: Any) -> JobSpec:
    return parse_spec({"model": "gpt-small", "precision": "fp32", "workers": 2, "training": TRAINING, **fields})


def known(spec: JobSpec) -> Profile:
    profile = profile_of(spec)
    assert profile is not None
    return profile


def timed(rates: Rates = RATES, **fields: Any) -> StepTime:
    spec = spec_of(**fields)
    choice = choice_of(spec, Room(profile_of=profile_of, memory=None))
    assert choice is not None
    found = step_time(spec, known(spec), choice, rates)
    assert found is not None
    return found


def test_a_model_computes_six_operations_for_each_parameter_of_its_matrices_and_its_attention_beside_them() -> None:
    tokens, layers, width, vocab = 2 * 128, 8, 512, 256
    matrices = layers * 12 * width**2 + vocab * width
    attention = layers * 128 * width
    assert known(spec_of()).operations == tokens * (6 * matrices + 14 * attention)
    for how, recomputed in ((True, 8), ("reentrant", 12)):
        again = known(spec_of(training={**TRAINING, "activation_checkpointing": how})).operations
        more = tokens * (2 * layers * recomputed * width**2 + 4 * attention)
        assert again == pytest.approx(tokens * (6 * matrices + 14 * attention) + more)


def test_the_busiest_rank_decides_how_long_all_compute() -> None:
    alone, three, four = (timed(workers=count, stage=1).compute_s for count in (1, 3, 4))
    assert (alone / four, three / four) == (pytest.approx(4), pytest.approx(2))


def test_traffic_goes_on_beside_the_computation_where_it_can() -> None:
    slow = replace(RATES, link=1e8)
    hidden, seen, after = (timed(rates, stage=1) for rates in (RATES, slow, replace(slow, overlaps=False)))
    assert seen.travel_s == pytest.approx(2 * known(spec_of()).numel * 4 / 2 / 1e8)
    assert (hidden.hides, seen.hides) == (True, False)
    assert hidden.total_s == hidden.compute_s + hidden.update_s
    assert seen.total_s == seen.travel_s + seen.update_s
    assert after.total_s == after.compute_s + after.travel_s + after.update_s
    assert timed(stage=1, workers=1).travel_s == 0


def test_gradients_travel_in_the_type_of_reductions_and_parameters_in_their_own() -> None:
    spec = {"stage": 1, "precision": {"params": "bf16", "reduce": "fp32"}}
    assert timed(**spec).travel_s == pytest.approx(0.75 * timed(stage=1).travel_s)


def test_what_is_offloaded_is_updated_where_it_rests_and_what_is_frozen_is_not() -> None:
    numel = known(spec_of()).numel
    assert timed(stage=0).update_s == pytest.approx(28 * numel / 1e10)
    assert timed(stage=1).update_s == pytest.approx(14 * numel / 1e10)
    away = 4 * numel / 2e9 + 14 * numel / 5e9
    assert timed(stage=1, offload="cpu").update_s == pytest.approx(away)
    assert timed(stage=1, offload="nvme").update_s == pytest.approx(away + 12 * numel / 1e8)
    spec = spec_of()
    choice = choice_of(spec, Room(profile_of=profile_of, memory=None))
    assert choice is not None
    frozen = replace(known(spec), frozen=numel)
    found = step_time(spec, frozen, choice, RATES)
    assert found is not None
    assert found.update_s == 0


def test_of_samples_whose_length_is_the_users_nothing_is_said() -> None:
    spec = spec_of(data={"python": "mine:samples"})
    choice = choice_of(spec, Room(profile_of=profile_of, memory=None))
    assert choice is not None
    assert step_time(spec, known(spec), choice, RATES) is None
