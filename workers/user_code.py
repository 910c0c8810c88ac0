"""Functions of the user's own that a spec names, and what can be wrong with a spec once a worker looks at it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


class SpecError(Exception):
    """The user's to mend: `field` of the spec, its `value`, the `problem` and the `fix`. Survives pickling."""

    def __init__(self, *, field: str, value: object, problem: str, fix: str) -> None:
        self.field, self.value, self.problem, self.fix = field, value, problem, fix
        super().__init__(f"{field} = {value!r}: {problem}; {fix}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.field, self.value, self.problem, self.fix)


class SourceUnreachable(Exception):
    """What the user names may well be there: the network between it and this worker, or the machine behind, failed."""


def _rebuilt(kind: type[SpecError], field: str, value: object, problem: str, fix: str) -> SpecError:
    return kind(field=field, value=value, problem=problem, fix=fix)


def import_function(target: str, *, field: str) -> Callable[..., Any]:
    """The callable behind `pkg.module:name`. Raises SpecError naming the half that is not there."""
    module_name, _, name = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        problem = f"no module {error.name!r} on this worker"
        raise SpecError(field=field, value=target, problem=problem, fix="install it, or mend the name") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise SpecError(
            field=field,
            value=target,
            problem=f"{module_name} has no function {name!r}",
            fix="name one of its functions",
        )
    return function  # type: ignore[no-any-return]
