"""The undisturbed curve: one process, plain PyTorch, the same global batches."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch

from service.domain.batching import micro_batches
from service.domain.spec import JobSpec
from workers.worker.assemble import build_loader, build_model
from workers.worker.schedule import lr_scale


def undisturbed(document: dict[str, Any], folder: Path) -> dict[int, float]:
    """step -> mean loss of the global batch. It is one for all engines, stages and sizes: computed once."""
    spec = JobSpec.model_validate(document)
    key = spec.model_dump_json(include={"model", "data", "training"})
    if key not in _KNOWN:
        _KNOWN[key] = _trained(spec, folder)
    return _KNOWN[key]


_KNOWN: dict[str, dict[int, float]] = {}


def _trained(spec: JobSpec, folder: Path) -> dict[int, float]:
    training = spec.training
    model, loader = build_model(spec), build_loader(spec, cache_folder=folder)
    asked = training.optimizer
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=asked.lr, betas=asked.betas, eps=asked.eps, weight_decay=asked.weight_decay
    )
    curve: dict[int, float] = {}
    for step in range(1, training.steps + 1):
        groups = micro_batches(step=step, batch_size=training.batch_size, micro_batch_size=training.micro_batch_size)
        curve[step] = 0.0
        for group in groups:
            key = f"{training.seed} {group.step} {group.index}".encode()
            torch.manual_seed(int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 1)
            loss = model(loader.batch(group)) * (group.size / training.batch_size)
            loss.backward()
            curve[step] += loss.item()
        if training.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm)
        for options in optimizer.param_groups:
            options["lr"] = asked.lr * lr_scale(step, schedule=training.schedule, steps=training.steps)
        optimizer.step()
        optimizer.zero_grad()
    return curve


def largest_difference(curve: dict[int, float], reference: dict[int, float]) -> float:
    """Relative, over the steps of the reference; every one of them must be there."""
    return max(abs(curve[step] - value) / abs(value) for step, value in reference.items())
