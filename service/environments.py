"""Whether what a job wants to bring along is there, as far as this machine can tell at submission."""

from __future__ import annotations

from dataclasses import dataclass

from service.domain.environment import EnvironmentSpec, needed_files, relative
from service.domain.errors import SpecRefused
from service.ports import Files


@dataclass(frozen=True, slots=True, kw_only=True)
class Environments:
    """`files`: None where workers run on other machines, which find out for themselves. `secrets_folder`: a folder of
    the machines of the workers; no more of it is looked at here than which names there are."""

    files: Files | None
    secrets_folder: str

    async def check(self, environment: EnvironmentSpec) -> None:
        """Raises SpecRefused with all problems."""
        if self.files is None:
            problems = list(relative(environment))
        else:
            needed = needed_files(environment, self.secrets_folder)
            problems = [problem for pattern, problem in needed if await self.files.size_bytes(pattern) is None]
        if problems:
            raise SpecRefused(problems)
