"""A Hugging Face folder (config, safetensors) as a model that trains: next-token loss, weights read piece by piece.

Parameters keep their names, so a checkpoint exports under them. A folder with a config alone starts from random values.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workers.layout.interval import Interval
from workers.models.blueprint import Blueprint, draw_up
from workers.tensor_folder import INDEX, SINGLE, NoTensors, read_interval, shape_in, tensor_files
from workers.user_code import SpecError

log = logging.getLogger(__name__)


def draw_folder(name: str, *, seq_len: int | None, seeded: Callable[[Callable[[], nn.Module]], nn.Module]) -> Blueprint:
    """The causal language model of a folder or an id. `seeded` runs a constructor under the job's seed.

    Raises SpecError where there is no such folder, or where it does not hold what its config describes.
    """
    folder, config = _config(name)
    context = getattr(config, "max_position_embeddings", None)
    if seq_len is not None and context is not None and seq_len > context:
        problem = f"longer than the model's context {context}"
        raise SpecError(field="training.seq_len", value=seq_len, problem=problem, fix=f"use at most {context}")
    drawn = draw_up(lambda: seeded(partial(_construct, config)))
    if not (folder / INDEX).is_file() and not (folder / SINGLE).is_file():
        log.warning("%s has a config and no safetensors: training starts from random values", folder)
        return drawn
    return _with_weights(drawn, folder, name)


def vocabulary(name: str) -> int | None:
    """How many tokens the model knows."""
    size = getattr(_config(name)[1], "vocab_size", None)
    return None if size is None else int(size)


def _config(name: str) -> tuple[Path, Any]:
    folder = _folder(name)
    try:
        from transformers import AutoConfig  # noqa: PLC0415 - an optional library

        return folder, AutoConfig.from_pretrained(folder)
    except ImportError as error:
        fix = "install elastane[hf] on the workers"
        raise SpecError(field="model.hf", value=name, problem="transformers is not installed", fix=fix) from error
    except (OSError, ValueError, KeyError) as error:
        problem = f"its config cannot be read: {error}"
        raise SpecError(field="model.hf", value=name, problem=problem, fix="give a folder with config.json") from error


def _folder(name: str) -> Path:
    """A folder as it is; an id from the hub, through the library's cache."""
    if Path(name).is_dir():
        return Path(name)
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        fix = "give a folder that every worker's machine has, or an id of the hub"
        raise SpecError(field="model.hf", value=name, problem="there is no such folder on this worker", fix=fix)
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415 - an optional library

        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors"]))
    except Exception as error:
        fix = "give a folder that every worker's machine has, or check the id and the network"
        raise SpecError(field="model.hf", value=name, problem=f"cannot be fetched: {error}", fix=fix) from error


def _construct(config: Any) -> nn.Module:
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 - an optional library

    causal: Any = AutoModelForCausalLM
    model: nn.Module = causal.from_config(config, dtype=torch.float32)
    # The model's own forward stays inside: the module that trains gives the loss, under the names that it has.
    model.forward = partial(_next_token_loss, model.forward)
    return model


def _next_token_loss(forward: Callable[..., Any], batch: Tensor) -> Tensor:
    """Of predicting tokens 1..T of a [B, T+1] batch from those before; in fp32."""
    logits_BTV = forward(input_ids=batch[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits_BTV.flatten(0, 1).float(), batch[:, 1:].flatten())


def _with_weights(drawn: Blueprint, folder: Path, value: str) -> Blueprint:
    """The same model with the folder's values; a parameter that the folder lacks is refused, not made up."""
    try:
        files = tensor_files(folder)
    except NoTensors as error:
        raise _refused(value, str(error)) from error
    model = drawn.model
    places = _places(model, files)
    if lacking := sorted(name for name, _ in model.named_parameters() if name not in places):
        raise _refused(value, f"its files lack {', '.join(lacking[:3])} ({len(lacking)} parameters)")
    for name, param in model.named_parameters():
        file, key = places[name]
        if (shape := shape_in(folder / file, key)) != tuple(param.shape):
            raise _refused(value, f"{key} has shape {list(shape)}, its config wants {list(param.shape)}")

    def read(name: str, interval: Interval) -> Tensor:
        file, key = places[name]
        return read_interval(folder / file, key, interval)

    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name in places and name not in drawn.hollow:
                tensor.copy_(read(name, Interval(0, tensor.numel())).reshape(tensor.shape))
    return Blueprint(model=model, hollow=drawn.hollow, read=read)


def _places(model: nn.Module, files: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """name -> (file, key): under any of a tied parameter's names, with or without the prefix of the inner model."""
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    firsts = {id(param): name for name, param in reversed(list(model.named_parameters()))}
    names = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
    places: dict[str, tuple[str, str]] = {}
    for alias, tensor in names:
        for key in (alias, alias.removeprefix(prefix)):
            if key in files:
                places.setdefault(firsts.get(id(tensor), alias), (files[key], key))
    return places


def _refused(value: str, problem: str) -> SpecError:
    return SpecError(field="model.hf", value=value, problem=problem, fix="save the whole model with save_pretrained")
