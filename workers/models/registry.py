"""From a ModelSpec to the module that trains: `forward(batch)` of what is built gives the loss.

Built under a seed, so that every rank, and every later joiner, starts from the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from service.domain.presets import PRESETS, GptShape
from service.domain.spec import GptModel, HfModel, ModelSpec, PythonModel
from workers.models.blueprint import Blueprint, draw_up
from workers.models.gpt import Gpt
from workers.models.huggingface import draw_folder
from workers.user_code import SpecError, import_function


class Objective(nn.Module):
    """A user's (model, loss_fn) as one module: `loss_fn(model, batch)` is its forward. Parameter names gain `model.`"""

    def __init__(self, model: nn.Module, loss_fn: Callable[[nn.Module, Any], Tensor]) -> None:
        super().__init__()
        self.model = model
        self._loss_fn = loss_fn

    def forward(self, batch: Any) -> Tensor:
        return self._loss_fn(self.model, batch)


def build(model_spec: ModelSpec, *, seed: int, seq_len: int | None = None) -> nn.Module:
    """The module of a spec, whole, on the CPU, in fp32. Leaves torch's random state as it found it.

    Raises SpecError where the spec names nothing that can be built, or `seq_len` is over the model's context.
    """
    if isinstance(model_spec, HfModel):
        return draw(model_spec, seed=seed, seq_len=seq_len).materialise()
    with _seeded(seed):
        if isinstance(model_spec, str):
            return _gpt(_preset(model_spec), seq_len)
        if isinstance(model_spec, GptModel):
            return _gpt(_shape(model_spec), seq_len)
        if isinstance(model_spec, PythonModel):
            return _objective(model_spec)
    raise SpecError(field="model", value=model_spec, problem="not a model spec", fix="see the contract, section 2")


def draw(model_spec: ModelSpec, *, seed: int, seq_len: int | None) -> Blueprint:
    """What `build` builds, its parameters on the meta device where that can be. Raises as `build` does."""
    if isinstance(model_spec, HfModel):
        return draw_folder(model_spec.hf, seq_len=seq_len, seeded=partial(_under, seed))
    return draw_up(lambda: build(model_spec, seed=seed, seq_len=seq_len))


def _under(seed: int, construct: Callable[[], nn.Module]) -> nn.Module:
    with _seeded(seed):
        return construct()


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _preset(name: str) -> GptShape:
    if name not in PRESETS:
        raise SpecError(field="model", value=name, problem="no such preset", fix=f"one of {', '.join(PRESETS)}")
    return PRESETS[name]


def _shape(spec: GptModel) -> GptShape:
    return GptShape(layers=spec.layers, width=spec.width, heads=spec.heads, vocab=spec.vocab, context=spec.context)


def _gpt(shape: GptShape, seq_len: int | None) -> Gpt:
    if seq_len is not None and seq_len > shape.context:
        raise SpecError(
            field="training.seq_len",
            value=seq_len,
            problem=f"longer than the model's context {shape.context}",
            fix=f"at most {shape.context}, or a model with a longer context",
        )
    return Gpt(shape)


def _objective(spec: PythonModel) -> nn.Module:
    built = import_function(spec.python, field="model.python")(**spec.args)
    if isinstance(built, nn.Module):
        return built
    if isinstance(built, tuple) and len(built) == 2 and isinstance(built[0], nn.Module) and callable(built[1]):
        return Objective(built[0], built[1])
    raise SpecError(
        field="model.python",
        value=spec.python,
        problem=f"returned {type(built).__name__}",
        fix="return an nn.Module whose forward(batch) is the loss, or (model, loss_fn) with loss_fn(model, batch)",
    )
