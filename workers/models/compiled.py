"""torch.compile of the modules that communicate together: their forwards become kernels, all else stays as it is."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from workers.user_code import SpecError


def compile_forwards(modules: Iterable[nn.Module]) -> None:
    """In place; each is compiled when it first runs, and modules that differ in values alone share their kernels.

    The module's `forward` is wrapped, not the module: its hooks stay outside, where an engine gathers parameters.
    """
    for module in modules:
        module.forward = _compiled(module.forward)


def _compiled(forward: Callable[..., Any]) -> Callable[..., Any]:
    # It loads the compiler: seconds, which nobody else should wait for.
    from torch._dynamo.exc import TorchDynamoException  # noqa: PLC0415

    _quote_library_folder()
    run = torch.compile(forward)

    def compiled(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except TorchDynamoException as error:
            problem = f"torch.compile cannot compile this model here: {_first_line(error)}"
            fix = "use compile: false, or mend what it names (on CPUs it needs a C++ compiler, on GPUs a C compiler)"
            raise SpecError(field="compile", value=True, problem=problem, fix=fix) from error

    return compiled


def _quote_library_folder() -> None:
    """torch 2.13 makes each folder of headers one word of the compiler's command, and not that of its libraries."""
    from torch.utils import cpp_extension  # noqa: PLC0415

    folder = cpp_extension.TORCH_LIB_PATH
    if " " in folder and not folder.startswith("'"):
        cpp_extension.TORCH_LIB_PATH = shlex.quote(folder)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
