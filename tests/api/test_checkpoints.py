"""What is done with a checkpoint over REST and on the command line; the data plane's process does it for real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from tests.api.live import LiveService, now
from tests.api.test_command import read, run
from tests.fakes.memory_engine import KINDS, whole_values
from tests.unit.checkpoint.saves import METAS, engines
from workers.checkpoint.parts import parts_of
from workers.checkpoint.store import LocalStore
from workers.checkpoint.writer import publish, write_rank
from workers.engine.states import StateKind


def published(service: LiveService, job_id: str, puppet: Any, *steps: int, **options: Any) -> Path:
    """Checkpoints on the disk of which the service has heard; the folder that they are in."""
    folder = Path(service.settings.checkpoints)
    store, (engine,) = LocalStore(folder), engines(1, seed=1, **options)
    for step in steps:
        where: dict[str, Any] = {"job": job_id, "step": step, "attempt": 1}
        report = write_rank(store, **where, rank=0, world_size=1, parts=parts_of(engine, rank=0))
        publish(store, **where, samples=0, spec_digest="", reports=[report], scalars={"steps": {}})
        said = {"step": step, "uri": f"{folder}/{job_id}/step-{step:08d}", "size_bytes": 9, "files": 2}
        puppet.beat({"checkpoint": {**said, "duration_s": 0.1, "at": now()}})
    return folder / job_id


def kinds(service: LiveService, job_id: str) -> list[str]:
    return [event["kind"] for event in service.http.get(f"/v1/jobs/{job_id}/events").json()["items"]]


def test_one_is_verified_exported_pinned_and_deleted(service: LiveService, tmp_path: Path) -> None:
    job_id, puppet = service.running()
    folder = published(service, job_id, puppet, 10, 20)
    assert run(service, "checkpoints", job_id).stdout.split()[0] == "STEP"
    verified = read(service, "checkpoints", "verify", job_id)
    assert (verified["step"], verified["whole"], verified["problems"]) == (20, True, [])
    exported = read(service, "export", job_id, "--to", str(tmp_path / "out"), "--step", "10")
    assert "model.safetensors" in exported["files"]
    with safe_open(tmp_path / "out" / "model.safetensors", framework="pt") as file:
        assert set(METAS) <= set(file.keys())
    assert read(service, "checkpoints", "pin", job_id, "--step", "10")["pinned"]
    assert (folder / "pin-00000010").exists()
    items = f"/v1/jobs/{job_id}/checkpoints"
    assert [item["pinned"] for item in service.http.get(items).json()["items"]] == [False, True]
    assert read(service, "checkpoints", "delete", job_id, "--step", "10")["deleted"]
    assert not (folder / "step-00000010").exists()
    assert not (folder / "pin-00000010").exists()
    assert [item["step"] for item in service.http.get(items).json()["items"]] == [20]
    assert kinds(service, job_id)[-3:] == ["checkpoint_verified", "checkpoint_exported", "checkpoint_deleted"]


def test_the_average_of_the_weights_is_exported_where_there_is_one(service: LiveService, tmp_path: Path) -> None:
    job_id, puppet = service.running()
    published(service, job_id, puppet, 10, kinds=(*KINDS, StateKind.EMA))
    weights, average, none = (str(tmp_path / name) for name in ("weights", "average", "none"))
    read(service, "export", job_id, "--to", weights)
    read(service, "export", job_id, "--to", average, "--average")
    name, meta = next((name, meta) for name, meta in METAS.items() if meta.trainable)
    for folder, kind in ((weights, StateKind.MASTER), (average, StateKind.EMA)):
        with safe_open(f"{folder}/model.safetensors", framework="pt") as file:
            assert torch.equal(file.get_tensor(name).reshape(-1), whole_values(kind, name, meta.numel, 1))
    published(service, job_id, puppet, 20)
    refused = run(service, "export", job_id, "--to", none, "--average")
    assert refused.returncode == 1
    assert "train with training.ema_decay" in refused.stderr


def test_a_damaged_one_is_named_and_no_success(service: LiveService, tmp_path: Path) -> None:
    job_id, puppet = service.running()
    (file,) = published(service, job_id, puppet, 10).glob("step-00000010/rank-*")
    file.write_bytes(file.read_bytes()[:-1] + b"\x99")
    done = run(service, "checkpoints", "verify", job_id)
    assert done.returncode == 1
    assert file.name in done.stdout
    file.unlink()
    refused = service.http.post(f"/v1/jobs/{job_id}/checkpoints/10/export", json={"to": str(tmp_path / "out")})
    assert refused.status_code == 409
    assert file.name in refused.json()["detail"]


@pytest.mark.parametrize("action", ["verify", "pin", "unpin"])
def test_what_is_not_there_is_not_found(service: LiveService, action: str) -> None:
    job_id = service.submit(workers=4000)["id"]
    answer = service.http.post(f"/v1/jobs/{job_id}/checkpoints/7/{action}")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:elastane:problem:checkpoint-not-found")


def test_the_one_that_a_live_job_would_go_on_from_stays(service: LiveService) -> None:
    job_id, puppet = service.running()
    published(service, job_id, puppet, 10)
    answer = service.http.delete(f"/v1/jobs/{job_id}/checkpoints/10")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:elastane:problem:checkpoint-needed")


@pytest.mark.parametrize("body", [{}, {"to": "relative"}, {"to": "/x", "format": "pickle"}, {"to": "/x", "also": 1}])
def test_a_bad_export_is_explained(service: LiveService, body: dict[str, Any]) -> None:
    job_id = service.submit(workers=4000)["id"]
    answer = service.http.post(f"/v1/jobs/{job_id}/checkpoints/7/export", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"]


def test_a_job_starts_from_a_checkpoint_of_another(service: LiveService) -> None:
    job_id, puppet = service.running()
    folder = published(service, job_id, puppet, 10)
    made = service.submit(**{"from": job_id})
    assert (made["spec"]["from"]["step"], made["spec"]["from"]["uri"]) == (10, str(folder))
    assert "newest checkpoint" in made["report"]["from"]
    refused = service.http.post("/v1/jobs", json={"model": "gpt-small", "from": f"{job_id}@10"})
    assert refused.status_code == 422
    assert "model.width is 128 there and 512 here" in refused.json()["errors"][0]["problem"]


def test_a_wish_whose_save_failed_may_be_made_again(service: LiveService) -> None:
    job_id, puppet = service.running()
    first = service.http.post(f"/v1/jobs/{job_id}/checkpoints").json()["id"]
    failure = {"kind": "checkpoint_failed", "step": 3, "at": now(), "payload": {"reason": "full", "request_id": first}}
    puppet.beat({"event": failure})
    assert service.http.post(f"/v1/jobs/{job_id}/checkpoints").json()["id"] != first
