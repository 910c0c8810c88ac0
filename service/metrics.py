"""Charts: series of samples, downsampled in the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.domain.errors import Problem, RequestRefused
from service.domain.parsing import nearest
from service.domain.series import METRICS, Series
from service.ports import Database

POINTS_LIMIT = 100_000
NAMES_LIMIT = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    database: Database

    async def series(
        self,
        job_id: str,
        *,
        names: Sequence[str] = (),
        points: int = 1000,
        from_step: int = 0,
        to_step: int | None = None,
    ) -> tuple[Series, ...]:
        """One series per name and rank; all names where none is given. A name of the contract that was not measured
        has no series; any other must be one that the job has. Raises JobNotFound, RequestRefused."""
        _check(names, points, from_step=from_step, to_step=from_step if to_step is None else to_step)
        async with self.database.read() as work:
            await work.jobs.get(job_id)
            found = await work.samples.series(job_id, names=names, points=points, from_step=from_step, to_step=to_step)
        _check_names(names, {one.name for one in found})
        return found


def _check_names(names: Sequence[str], there: set[str]) -> None:
    known = (*METRICS, *sorted(there.difference(METRICS)))
    problems = [
        Problem(field="names", value=name, problem=f"there is no metric {name!r}", fix=nearest(name, known))
        for name in names
        if name not in known
    ]
    if problems:
        raise RequestRefused(problems)


def _check(names: Sequence[str], points: int, **steps: int) -> None:
    problems = []
    if not 1 <= points <= POINTS_LIMIT:
        problems.append(Problem(field="points", value=points, problem="out of range", fix=f"use 1 to {POINTS_LIMIT}"))
    for field, step in steps.items():
        if not 0 <= step < 2**63:
            problems.append(Problem(field=field, value=step, problem="out of range", fix="use 0 or more"))
    if len(names) > NAMES_LIMIT:
        fix = f"ask for at most {NAMES_LIMIT}"
        problems.append(Problem(field="names", value=len(names), problem="too many names", fix=fix))
    if problems:
        raise RequestRefused(problems)
