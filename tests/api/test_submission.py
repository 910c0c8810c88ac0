"""Submitting: once and only once, and every bad spec refused in words."""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.api.live import TINY, LiveService

NAN = float("nan")
BAD_SPECS: list[Any] = [
    {},
    [],
    1,
    "x",
    None,
    {"model": 5},
    {"model": "nope"},
    {"model": "gpt-tiny", "stage": 4},
    {"model": "gpt-tiny", "stage": -1},
    {"model": "gpt-tiny", "stge": 1},
    {"model": "gpt-tiny", "workers": 0},
    {"model": "gpt-tiny", "workers": {"min": 3, "max": 2}},
    {"model": "gpt-tiny", "workers": 10**9},
    {"model": "gpt-tiny", "workers": True},
    {"model": "gpt-tiny", "training": {"steps": -1}},
    {"model": "gpt-tiny", "training": {"steps": 10**30}},
    {"model": "gpt-tiny", "training": {"batch_size": 3, "micro_batch_size": 0}},
    {"model": "gpt-tiny", "training": {"batch_size": 5, "micro_batch_size": 2}},
    {"model": "gpt-tiny", "training": []},
    {"model": "gpt-tiny", "offload": "gpu"},
    {"model": "gpt-tiny", "precision": "fp7"},
    {"model": "gpt-tiny", "name": "../../etc"},
    {"model": "gpt-tiny", "name": "a" * 4000},
    {"model": "gpt-tiny", "name": "a\u0000b"},
    {"model": {"name": "gpt", "layers": 0}},
    {"model": {"name": "gpt", "width": 7, "heads": 2}},
    {"model": "gpt-tiny", "data": {"text": "/nonexistent/*"}},
    {"model": "gpt-tiny", "priority": 101},
    {"model": "gpt-tiny", "checkpoint": {"every_steps": 0}},
    {"model": "gpt-tiny", "training": {"optimizer": {"name": "adamw", "lr": NAN}}},
    {"model": "gpt-tiny", "training": {"optimizer": {"name": "adamw", "lr": -1}}},
    {"model": "gpt-tiny", "stage": 1, "offload": {"params": "cpu"}},
    {"model": "gpt-tiny", "training": {"seq_len": 10**7}},
]


def post(service: LiveService, body: bytes, **headers: str) -> httpx.Response:
    sent = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return service.http.post("/v1/jobs", content=body, headers=sent)


def test_the_shortest_spec_makes_a_job_with_an_address(service: LiveService) -> None:
    answer = service.http.post("/v1/jobs", json={"model": "gpt-tiny"})
    assert answer.status_code == 201
    assert service.http.get(answer.headers["location"]).json()["id"] == answer.json()["id"]


def test_a_job_says_everything_that_the_contract_pins(service: LiveService) -> None:
    job = service.job(service.submit(name="whole")["id"])
    assert set(job) == {
        "id", "name", "state", "reason", "spec", "stage", "step", "steps", "workers", "generation", "attempt",
        "throughput_tokens_per_s", "loss", "memory", "priority", "key_id", "created_at", "started_at", "ended_at",
        "heartbeat_at",
    }  # fmt: skip
    assert (job["name"], job["steps"], job["stage"]) == ("whole", 20, 2)
    assert set(job["workers"]) == {"desired", "actual", "min", "max"}
    assert job["created_at"].endswith(("Z", "+00:00"))


def test_fifty_parallel_posts_with_one_key_make_one_job(service: LiveService) -> None:
    key, body = uuid.uuid4().hex, json.dumps(TINY).encode()
    with ThreadPoolExecutor(25) as pool:
        answers = list(pool.map(lambda _: post(service, body, Idempotency_Key=key), range(50)))
    assert {answer.status_code for answer in answers} <= {200, 201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert [answer.status_code for answer in answers].count(201) == 1


def test_the_same_key_with_another_body_is_a_conflict(service: LiveService) -> None:
    key = uuid.uuid4().hex
    first = post(service, json.dumps(TINY).encode(), Idempotency_Key=key)
    second = post(service, json.dumps({**TINY, "workers": 2}).encode(), Idempotency_Key=key)
    assert second.status_code == 409
    assert second.json()["job_id"] == first.json()["id"]


def test_two_posts_without_a_key_make_two_jobs(service: LiveService) -> None:
    assert service.submit()["id"] != service.submit()["id"]


def test_a_dry_run_plans_and_makes_nothing(service: LiveService) -> None:
    name = f"dry-{uuid.uuid4().hex[:8]}"
    answer = service.http.post("/v1/jobs?dry_run=true", json={**TINY, "name": name})
    assert answer.status_code == 200
    assert {choice["stage"] for choice in answer.json()["plan"]["choices"]} == {0, 1, 2, 3}
    assert service.http.get("/v1/jobs", params={"name": name}).json()["items"] == []


def test_a_dry_run_refuses_what_a_submission_would(service: LiveService) -> None:
    assert service.http.post("/v1/jobs?dry_run=true", json={"model": "nope"}).status_code == 422


def test_a_job_that_exceeds_the_memory_it_asks_for_is_refused_unless_its_state_rests_on_a_disk(
    service: LiveService,
) -> None:
    fields = {"model": "gpt-medium", "stage": 1, "precision": "fp32", "resources": {"cpu": 1, "memory_gb": 1.5}}
    document = {**fields, "training": {"batch_size": 1, "seq_len": 32}}
    refused = service.http.post("/v1/jobs?dry_run=true", json=document)
    assert refused.status_code == 422
    assert [error["field"] for error in refused.json()["errors"]] == ["resources.memory_gb"]
    taken = service.http.post("/v1/jobs?dry_run=true", json={**document, "offload": "nvme"})
    assert taken.status_code == 200
    (mine,) = [c for c in taken.json()["plan"]["choices"] if (c["stage"], c["offload"], c["workers"]) == (1, "nvme", 1)]
    assert mine["bytes_by_kind"]["optimizer"].keys() == {"nvme"}
    assert mine["fits"]


def test_yaml_makes_the_same_job_as_json(service: LiveService) -> None:
    text = b"model: gpt-tiny\nworkers: {min: 1, max: 3}\ntraining: {steps: 7}\n"
    answer = service.http.post("/v1/jobs", content=text, headers={"content-type": "application/yaml"})
    assert answer.status_code == 201
    assert (answer.json()["steps"], answer.json()["workers"]["max"]) == (7, 3)


@pytest.mark.parametrize("spec", BAD_SPECS, ids=lambda spec: json.dumps(spec)[:60])
def test_a_bad_spec_is_refused_as_a_problem(service: LiveService, spec: Any) -> None:
    body = b"{" if spec is None else json.dumps(spec).encode()
    answer = post(service, body)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("spec", "field", "word"),
    [
        ({"model": "gpt-tiny", "stge": 1}, "stge", "stage"),
        ({"model": "gpt-tiny", "training": {"step": 1}}, "training.step", "steps"),
        ({"model": "gpt-tinny"}, "model", "gpt-tiny"),
        (
            {"model": "gpt-tiny", "training": {"batch_size": 5, "micro_batch_size": 2}},
            "training.batch_size",
            "multiple",
        ),
    ],
)
def test_a_wrong_field_is_named_with_the_way_out(service: LiveService, spec: Any, field: str, word: str) -> None:
    errors = service.http.post("/v1/jobs", json=spec).json()["errors"]
    found = next(error for error in errors if error["field"] == field)
    assert found["problem"]
    assert word in found["problem"] + found["fix"]


def test_a_refused_spec_leaves_no_job(service: LiveService) -> None:
    name = f"bad-{uuid.uuid4().hex[:8]}"
    service.http.post("/v1/jobs", json={**TINY, "name": name, "stage": 9})
    assert service.http.get("/v1/jobs", params={"name": name}).json()["items"] == []


@pytest.mark.parametrize("key", ["", "x" * 1000, "a\tb"])
def test_an_idempotency_key_that_cannot_be_one_is_refused(service: LiveService, key: str) -> None:
    assert post(service, json.dumps(TINY).encode(), Idempotency_Key=key).status_code == 422
