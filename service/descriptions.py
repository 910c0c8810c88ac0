"""Models that are none of ours, described by a process of the data plane, and remembered for a while."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.domain.errors import Problem, SpecRefused
from service.domain.profile import shape_of
from service.domain.spec import JobSpec, PythonData, PythonModel
from service.ports import Clock, Launcher, Tool

TIMEOUT_S = 120.0
# A user's module may change under the same name, so an answer is good for a while alone.
KEPT_FOR_S = 300.0
MOST_KEPT = 256

Description = Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class Descriptions:
    launcher: Launcher
    clock: Clock
    # What the tool is told beside the spec: where things are on the machines of the workers.
    places: Sequence[str] = ()
    _known: OrderedDict[str, tuple[float, Description]] = field(default_factory=OrderedDict)
    # One at a time: each is a process that loads torch.
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def of(self, spec: JobSpec) -> Description:
        """Raises SpecRefused where it cannot be built, ToolUnavailable."""
        key = digest(spec)
        async with self._turn:
            told = self._known.get(key)
            if told is None or self.clock.monotonic() - told[0] > KEPT_FOR_S:
                arguments = [spec.model_dump_json(), *self.places]
                answer = await self.launcher.run(
                    Tool.DESCRIBE, arguments, timeout_s=TIMEOUT_S, users_code=runs_code(spec)
                )
                told = (self.clock.monotonic(), _accepted(answer))
                self._known[key] = told
                while len(self._known) > MOST_KEPT:
                    self._known.popitem(last=False)
        return told[1]


def runs_code(spec: JobSpec) -> bool:
    """Whether describing it runs what the user wrote: a function that the spec names, or what the spec brings along."""
    if shape_of(spec) is not None:
        return False
    return isinstance(spec.model, PythonModel) or isinstance(spec.data, PythonData) or spec.environment.brings_code


def digest(spec: JobSpec) -> str:
    """Of what is described: the model, its units, and what one micro-batch of it is."""
    training = spec.training.model_copy(update={"activation_checkpointing": False})
    parts = {"model", "units", "precision", "data", "environment"}
    shape = f"{training.micro_batch_size} {training.seq_len} {training.seed}"
    return hashlib.sha256(f"{shape} {spec.model_dump_json(include=parts)}".encode()).hexdigest()


def _accepted(answer: Description) -> Description:
    """As it is, also where the data plane could not describe it; what the user has to correct is refused."""
    if answer.get("error") != "spec_refused":
        return answer
    field_, problem = str(answer.get("field", "model")), str(answer.get("problem", answer.get("detail", "")))
    fix = str(answer.get("fix", "see that it can be built where workers run"))
    raise SpecRefused([Problem(field=field_, value=answer.get("value"), problem=problem[:500], fix=fix)])
