"""`python -m workers.worker.describe SPEC`: what a plan has to know of a model, as one JSON document.

Parameters stay on the meta device; one micro-batch is traced on tensors that have shapes and no memory. The service has
no torch and runs this where workers run. Exit status 0; 1 where the model cannot be built, `error` in the document.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO, cast

import torch
from torch import nn

from service.domain.batching import micro_batches
from service.domain.spec import JobSpec, PythonData
from workers.data.errors import DataError
from workers.engine.units import group_units, hidden_matrices
from workers.models.recompute import recompute, repeated_blocks
from workers.user_code import SpecError
from workers.worker import environment, trace
from workers.worker.assemble import DTYPES, build_loader, draw_model, unit_rule
from workers.worker.redaction import CleanStream, Redactor


def describe(spec: JobSpec, *, cache_folder: Path) -> dict[str, Any]:
    """Raises SpecError and DataError where the spec names nothing that can be built."""
    plain = spec.model_copy(update={"training": spec.training.model_copy(update={"activation_checkpointing": False})})
    model = draw_model(plain).model
    params = dict(model.named_parameters())
    matrices = hidden_matrices(model)
    known = {
        "model": type(model).__name__,
        "numel": sum(param.numel() for param in params.values()),
        "frozen": sum(param.numel() for param in params.values() if not param.requires_grad),
        "matrices": sum(params[name].numel() for name in matrices),
        "micro_batch_size": spec.training.micro_batch_size,
        "units": [
            {
                "name": unit.name,
                "numel": sum(param.numel() for param in unit.params.values()),
                "trained": sum(param.numel() for param in unit.params.values() if param.requires_grad),
            }
            for unit in group_units(model, unit_rule(spec.units))
        ],
    }
    try:
        batch = _batch(plain, cache_folder)
        return {**known, "activations": _activations(model, spec, batch), "untraced": None}
    except (SpecError, DataError):
        raise
    except Exception as error:
        # The forward is the user's: it may look at values, which a trace has not.
        return {**known, "activations": None, "untraced": f"{type(error).__name__}: {error}"[:500]}


def _batch(spec: JobSpec, cache_folder: Path) -> Any:
    """Of a user's dataset the first micro-batch; of a corpus of tokens only the shape matters."""
    training = spec.training
    if not isinstance(spec.data, PythonData):
        return torch.zeros(training.micro_batch_size, training.seq_len + 1, dtype=torch.int64)
    group, *_ = micro_batches(step=1, batch_size=training.batch_size, micro_batch_size=training.micro_batch_size)
    return build_loader(spec, cache_folder=cache_folder).batch(group)


def _activations(model: nn.Module, spec: JobSpec, batch: Any) -> dict[str, Any]:
    """Of one micro-batch, without and with checkpointing: what a forward keeps, the most that is alive in its backward,
    and operations of both."""
    plain = _traced(model, spec, batch)
    recompute(repeated_blocks(model))
    return {"plain": plain, "checkpointed": _traced(model, spec, batch)}


def _traced(model: nn.Module, spec: JobSpec, batch: Any) -> dict[str, int]:
    types = {"params": DTYPES[spec.precision.params], "buffers": DTYPES[spec.precision.buffers]}
    units = [unit.params for unit in group_units(model, unit_rule(spec.units))]
    kept = trace.kept_bytes(model, batch, **types)
    return {"kept_bytes": kept, **trace.course(model, batch, units=units, **types)._asdict()}


def main(argv: list[str]) -> int:
    arguments, redactor, output = _arguments(argv), Redactor(), sys.stdout
    with redirect_stdout(_clean(sys.stdout, redactor)), redirect_stderr(_clean(sys.stderr, redactor)):
        answer = _answer(arguments, redactor)
    shown = {name: redactor.clean(value) if isinstance(value, str) else value for name, value in answer.items()}
    output.write(f"\n{json.dumps(shown)}\n")
    return 1 if "error" in answer else 0


def _answer(arguments: argparse.Namespace, redactor: Redactor) -> dict[str, Any]:
    spec = JobSpec.model_validate_json(arguments.spec)
    try:
        with TemporaryDirectory(prefix="elastane-describe-") as folder:
            if arguments.folder is not None:
                os.chdir(arguments.folder)
            places = environment.Places.of(cache=arguments.cache or folder, secrets=arguments.secrets)
            environment.enter(spec.environment, places, redactor)
            return describe(spec, cache_folder=Path(folder))
    except SpecError as error:
        facts = {"field": error.field, "value": str(error.value)[:100], "problem": error.problem, "fix": error.fix}
        return {"error": "spec_refused", "detail": str(error), **facts}
    except Exception as error:
        return {"error": "not_described", "detail": f"{type(error).__name__}: {error}"}


def _clean(stream: TextIO, redactor: Redactor) -> TextIO:
    return cast(TextIO, CleanStream(stream, redactor))


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workers.worker.describe", description="What a plan has to know.")
    parser.add_argument("spec", help="a whole spec, as JSON")
    parser.add_argument("--folder", help="where relative paths of the spec start from")
    parser.add_argument("--cache", help="for what the spec's environment brings")
    parser.add_argument("--secrets", help="the operator's folder of secrets")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
