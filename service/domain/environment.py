"""What a job brings along for code of the user's: a folder, packages, variables, and secrets by reference alone.

Variables are part of the spec and shown with it. Of a secret the spec has the name of a file in a folder that the
operator filled; its value is read by the worker that needs it, and is nowhere else.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from service.domain.checkpoint import OBJECT_SCHEMES
from service.domain.errors import Problem
from service.domain.value import Value

ARCHIVE = ".zip"
SCHEMES = ("https", *OBJECT_SCHEMES)
NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
# Lower case, as an operator may name files: a token that was written in place of its name is refused unseen.
REFERENCE = r"^[a-z0-9][a-z0-9._-]{0,62}$"
# What the service, Ray and the interpreter steer a worker by.
OURS = re.compile(r"ELASTANE_|RAY_|PYTHON(PATH|HOME|STARTUP)$|CUDA_VISIBLE_DEVICES$|LD_PRELOAD$")


def _name(name: str) -> str:
    if re.fullmatch(NAME, name) is None:
        raise ValueError("no name of a variable; use letters, digits and _")
    if OURS.match(name):
        raise ValueError("that variable is the service's own; use another name")
    return name


def _reference(text: str) -> str:
    if re.fullmatch(REFERENCE, text) is None:
        raise ValueError("no name of a secret; write that under which the operator keeps it, lower case: not its value")
    return text


def _requirement(text: str) -> str:
    """One package, never an option: another index or a constraint is the operator's to set up on the workers."""
    if text.startswith("-"):
        raise ValueError("an option of pip; name one package, as in numpy==2.3.0")
    if not text.isprintable():
        raise ValueError("more than one line; name one package, as in numpy==2.3.0")
    if re.search(r"://[^/]*@", text):
        raise ValueError("holds credentials; leave them to pip's own configuration on the workers")
    return text


def _place(place: str) -> str:
    scheme, mark, rest = place.partition("://")
    if not mark:
        return place
    if scheme not in SCHEMES:
        raise ValueError(f"no such source; give a folder, a {ARCHIVE} or one of {', '.join(SCHEMES)}://...{ARCHIVE}")
    if "@" in rest.partition("/")[0] or "?" in rest:
        raise ValueError("holds credentials or options; leave them to the environment of the workers")
    if not rest.endswith(ARCHIVE):
        raise ValueError(f"no archive; give a {ARCHIVE} of the folder")
    return place


Name = Annotated[str, AfterValidator(_name), Field(max_length=128)]
Reference = Annotated[str, AfterValidator(_reference), Field(json_schema_extra={"pattern": REFERENCE})]
Requirement = Annotated[str, AfterValidator(_requirement), Field(min_length=1, max_length=300)]


class EnvironmentSpec(Value):
    """Every worker of the job, and the process that describes its model for a plan, enters it before it imports code
    of the user's. Needs the scope `submit`, as such code does."""

    working_dir: Annotated[str, AfterValidator(_place)] | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="a folder or a .zip where workers run, or https:// or an object store's URI of a .zip; modules are "
        "imported from it and relative paths start from it",
    )
    pip: tuple[Requirement, ...] = Field(
        (), max_length=100, description="packages to add, none of which may change one that the workers have"
    )
    variables: dict[Name, Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict, max_length=100, description="NAME: value; shown to whoever may read the job"
    )
    secrets: dict[Name, Reference] = Field(
        default_factory=dict,
        max_length=100,
        description="NAME: the name of a file in the operator's folder of secrets; the value is never shown",
    )

    @model_validator(mode="after")
    def _once(self) -> EnvironmentSpec:
        if twice := sorted(self.variables.keys() & self.secrets.keys()):
            raise ValueError(f"{twice[0]} is both a variable and a secret; keep one of the two")
        return self

    @property
    def brings_code(self) -> bool:
        """Whether entering it runs, or may run, what the user wrote."""
        return bool(self.working_dir or self.pip)

    @property
    def is_remote(self) -> bool:
        return self.working_dir is not None and "://" in self.working_dir

    def seen_from(self, path: str) -> str | None:
        """Where a path of the spec leads; None where that is inside an archive."""
        if self.working_dir is None or os.path.isabs(path) or path.startswith("~"):
            return path
        return None if self.working_dir.endswith(ARCHIVE) else os.path.join(glob.escape(self.working_dir), path)


def needed_files(environment: EnvironmentSpec, secrets_folder: str) -> Iterator[tuple[str, Problem]]:
    """Globs of which each must match a file of the workers' machine, and what it means where it does not."""
    place = environment.working_dir
    if place is not None and not environment.is_remote:
        pattern = glob.escape(place) if place.endswith(ARCHIVE) else os.path.join(glob.escape(place), "**")
        fix = "give the path of a folder with files, or of a .zip, on the machine of the workers"
        yield pattern, Problem(field="environment.working_dir", value=place, problem="is not there", fix=fix)
    for name, reference in environment.secrets.items():
        fix = "have the operator put it there, and write the name of its file: never the secret itself"
        # What was written may be the secret itself.
        problem = Problem(
            field=f"environment.secrets.{name}", value="...", problem="there is no secret of that name", fix=fix
        )
        yield os.path.join(glob.escape(secrets_folder), reference), problem


def relative(environment: EnvironmentSpec) -> Iterator[Problem]:
    """What means nothing on other machines than this one."""
    place = environment.working_dir
    if place is not None and not environment.is_remote and not os.path.isabs(place):
        problem = "the workers run on other machines, where it is relative to nothing in particular"
        fix = f"give an absolute path that each of them has, or the URI of a {ARCHIVE}"
        yield Problem(field="environment.working_dir", value=place, problem=problem, fix=fix)
