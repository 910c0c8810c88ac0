"""Whether what a job brings along or names is there, as far as this machine can tell at submission and at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from service.domain.admission import data_of
from service.domain.environment import needed_files, relative
from service.domain.errors import Problem, SpecRefused
from service.domain.presets import Shape
from service.domain.spec import JobSpec, PythonData, PythonModel, TokensData
from service.ports import Files


@dataclass(frozen=True, slots=True, kw_only=True)
class Environments:
    """`files`: None where workers run on other machines, which find out for themselves. `secrets_folder`: a folder of
    the machines of the workers; no more of it is looked at here than which names there are."""

    files: Files | None
    secrets_folder: str

    async def check(self, spec: JobSpec, shape: Shape | None) -> None:
        """shape: of the model, where it is known. Raises SpecRefused with all problems."""
        if self.files is None:
            problems = list(relative(spec.environment))
        else:
            problems = [problem async for problem in self._absent(spec, shape, self.files)]
        if problems:
            raise SpecRefused(problems)

    async def _absent(self, spec: JobSpec, shape: Shape | None, files: Files) -> AsyncIterator[Problem]:
        for pattern, problem in needed_files(spec.environment, self.secrets_folder):
            if not await files.exists(pattern):
                yield problem
        for field, function in _functions(spec):
            if (lack := await files.lacks(function)) is not None:
                yield Problem(field=field, value=function, problem=lack, fix="mend the name, or put it there")
        place = data_of(spec)
        if shape is None or place is None or not isinstance(spec.data, TokensData):
            return
        for token in await files.token_range(place, spec.data.dtype) or ():
            if not 0 <= token < shape.vocab:
                wrong = f"token {token} is not in the model's vocabulary 0..{shape.vocab - 1}"
                fix = "use a model with a larger vocab, or check data.dtype"
                yield Problem(field="data.tokens", value=place, problem=wrong, fix=fix)


def _functions(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Those that a worker imports from what is on its machine: what the job brings along may hold any."""
    if spec.environment.brings_code:
        return
    if isinstance(spec.model, PythonModel):
        yield "model.python", spec.model.python
    if isinstance(spec.data, PythonData):
        yield "data.python", spec.data.python
