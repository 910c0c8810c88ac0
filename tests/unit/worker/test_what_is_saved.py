"""All that a job needs to go on is in its checkpoint, and what was loaded is saved again as the same content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed import HashStore

from service.domain.spec import JobSpec
from service.domain.wire import Brief
from tests.unit.engine.groups import Seat, engine_at
from workers.checkpoint.catalogue import inspect
from workers.checkpoint.manifest import Manifest
from workers.checkpoint.reader import read_into
from workers.checkpoint.store import LocalStore
from workers.checkpoint.tensors import reading
from workers.engine.precision import Precision
from workers.engine.zero.engine import ZeroEngine
from workers.optimizers.config import OptimizerConfig
from workers.worker.checkpoints import Checkpoints
from workers.worker.loop import Place
from workers.worker.messages import Saved

SPEC = JobSpec.model_validate(
    {
        "model": "gpt-tiny",
        "precision": "fp16",
        "training": {
            "steps": 50,
            "batch_size": 4,
            "seed": 7,
            "schedule": {"name": "cosine", "warmup_steps": 5, "min_lr_ratio": 0.1},
            "ema_decay": 0.9,
        },
    }
)
SKIPPED = 1


class Rich(nn.Module):
    """Of everything one: a tie, a frozen parameter, one that is seldom used, buffers of several types."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.last = nn.Linear(5, 5), nn.Linear(5, 5)
        self.last.weight = self.first.weight
        self.seldom = nn.Parameter(torch.randn(3))
        self.frozen = nn.Parameter(torch.randn(5), requires_grad=False)
        self.register_buffer("count", torch.tensor(2**40 + seed))
        self.register_buffer("mask", torch.arange(4) % (seed + 2) == 0)
        self.register_buffer("mean", torch.randn(2, 3, dtype=torch.float64))

    def forward(self, numbers: tuple[Tensor, bool]) -> Tensor:
        x, uses_all = numbers
        x = self.last(torch.tanh(self.first(x.half()))) + self.frozen.half()
        return x.float().square().mean() + (self.seldom.float().square().mean() if uses_all else 0.0)


def engine(seed: int) -> tuple[ZeroEngine, Rich]:
    model = Rich(seed)
    options: dict[str, Any] = {
        "precision": Precision(params=torch.float16, reduce=torch.float32),
        "optimizer": OptimizerConfig(lr=1e-2, ema_decay=0.9),
    }
    return engine_at(model, Seat(), **options), model


def trained(seed: int) -> tuple[ZeroEngine, Rich]:
    """Three updates, and one that the loss scale skipped."""
    made, model = engine(seed)
    for step in range(4):
        x = torch.randn(4, 5, generator=torch.Generator().manual_seed(step))
        made.micro_step((x * (1e9 if step == 1 else 1.0), step == 0), weight=1.0, last=True)
        assert made.step(lr_scale=1.0).skipped == (step == 1)
    return made, model


def saved(folder: Path, engine: ZeroEngine, model: nn.Module, *, step: int) -> Manifest:
    brief = Brief(
        job_id="job",
        attempt_id="a",
        attempt_number=3,
        spec=SPEC,
        workers=1,
        checkpoint_uri=str(folder),
        cache_folder="",
        log_folder="",
        ray_address="",
        namespace="",
        orphan_timeout_s=60.0,
    )
    checkpoints, place = Checkpoints(brief), Place(generation=1, rank=0, world_size=1)
    checkpoints.know(model)
    told = checkpoints.save(step, engine=engine, place=place, store=HashStore(), skipped=SKIPPED)
    assert isinstance(told, Saved), told
    return inspect(LocalStore(folder), "job", step, verify_bytes=True)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest, ZeroEngine]:
    folder = tmp_path_factory.mktemp("first")
    made, model = trained(1)
    return folder, saved(folder, made, model, step=4), made


def test_parameters_moments_averages_and_buffers_are_there_in_their_types(
    first: tuple[Path, Manifest, ZeroEngine],
) -> None:
    _, manifest, _ = first
    names = {"first.weight", "first.bias", "last.bias", "seldom"}
    kept = {f"{kind}/{name}" for kind in ("master", "exp_avg", "exp_avg_sq", "ema") for name in names}
    buffers = {"buffer/count": "int64", "buffer/mask": "bool", "buffer/mean": "float64"}
    assert manifest.tensors.keys() == kept | {"master/frozen"} | buffers.keys()
    for name, tensor in manifest.tensors.items():
        assert tensor.dtype == buffers.get(name, "float32"), name


def test_what_is_not_per_element_is_there_too(first: tuple[Path, Manifest, ZeroEngine]) -> None:
    _, manifest, _ = first
    assert manifest.scalars["steps"] == {"first.weight": 3, "first.bias": 3, "last.bias": 3, "seldom": 1}
    assert manifest.scalars["updates"] == 3
    # The initial scale, halved at the step that was skipped, and two good steps since.
    assert manifest.scalars["loss_scale"] == {"value": 32768.0, "good_steps": 2, "patience": 1}
    assert (manifest.step, manifest.samples, manifest.attempt) == (4, 16, 3)
    assert manifest.spec_digest == SPEC.digest()
    training = json.loads(SPEC.model_dump_json())["training"]
    assert manifest.extra["training"] == training
    assert manifest.extra["training"]["schedule"]["warmup_steps"] == 5
    assert manifest.extra["random_numbers"]["seed"] == 7
    assert manifest.extra["skipped_steps"] == SKIPPED
    assert manifest.extra["ties"] == {"last.weight": "first.weight"}
    assert manifest.written_by.keys() == {"elastane", "torch"}


def test_load_and_save_give_the_same_content(first: tuple[Path, Manifest, ZeroEngine], tmp_path: Path) -> None:
    folder, manifest, _ = first
    made, model = engine(2)
    read_into(made, rank=0, manifest=manifest, store=LocalStore(folder))
    made.commit_load()
    again = saved(tmp_path, made, model, step=4)
    for field in ("samples", "spec_digest", "scalars", "extra"):
        assert getattr(again, field) == getattr(manifest, field), field
    assert again.tensors.keys() == manifest.tensors.keys()
    with reading(LocalStore(folder), manifest) as before, reading(LocalStore(tmp_path), again) as after:
        for name, tensor in manifest.tensors.items():
            assert (again.tensors[name].shape, again.tensors[name].dtype) == (tensor.shape, tensor.dtype), name
            assert torch.equal(after.read(name), before.read(name)), name


def test_it_goes_on_as_if_nothing_had_been(first: tuple[Path, Manifest, ZeroEngine]) -> None:
    folder, manifest, uninterrupted = first
    made, _ = engine(2)
    read_into(made, rank=0, manifest=manifest, store=LocalStore(folder))
    made.commit_load()
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(9))
    for each in (made, uninterrupted):
        each.micro_step((x, True), weight=1.0, last=True)
        each.step(lr_scale=1.0)
    assert made.scalars() == uninterrupted.scalars()
    for kind in made.kinds():
        for piece in made.layout().of(0):
            if piece.tensor != "frozen":
                assert torch.equal(made.export(kind, piece), uninterrupted.export(kind, piece)), (kind, piece)
