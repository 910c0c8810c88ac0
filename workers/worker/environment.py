"""What a job brings along, entered by this process before code of the user's is imported.

In this order: secrets, variables, the folder, packages. A step that was done before is done again without harm. What is
wrong with any of it is a SpecError, the user's to mend; a source that could not be reached is a SourceUnreachable.
"""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from service.domain.environment import ARCHIVE, EnvironmentSpec
from workers.user_code import SpecError
from workers.worker.archive import fetch, unpack
from workers.worker.packages import packages
from workers.worker.redaction import SHORTEST, Redactor

LONGEST_SECRET = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """On this machine. secrets: the operator's folder, where there is one. cache: for what is fetched and installed."""

    secrets: Path | None
    cache: Path

    @classmethod
    def of(cls, *, cache: str, secrets: str | None) -> Places:
        return cls(secrets=None if secrets is None else Path(secrets), cache=Path(cache))


def enter(environment: EnvironmentSpec, places: Places, redactor: Redactor) -> None:
    """Raises SpecError, SourceUnreachable."""
    for name, reference in environment.secrets.items():
        os.environ[name] = _secret(name, reference, places.secrets, redactor)
    os.environ.update(environment.variables)
    if environment.working_dir is not None:
        folder = _folder(environment.working_dir, places.cache)
        os.chdir(folder)
        sys.path.insert(0, str(folder))
    if environment.pip:
        sys.path.append(str(packages(environment, cache=places.cache, clean=redactor.clean)))
    importlib.invalidate_caches()


def _secret(name: str, reference: str, folder: Path | None, redactor: Redactor) -> str:
    """Read now, and in no other place than this process's memory; no message tells more of it than its name."""
    try:
        if folder is None:
            raise FileNotFoundError
        # An editor ends a file with a line end that is no part of a secret.
        value = (folder / reference).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        absent = isinstance(error, FileNotFoundError)
        problem = "no such secret on this worker" if absent else f"it cannot be read here ({type(error).__name__})"
        raise _refusal(name, reference, problem, f"have the operator put it into {folder}") from None
    if not SHORTEST <= len(value) <= LONGEST_SECRET or "\x00" in value:
        problem = f"a secret has {SHORTEST} to {LONGEST_SECRET} characters of text, and this one has not"
        # A shorter one could not be kept out of the logs without taking ordinary words along.
        raise _refusal(name, reference, problem, "have the operator put a longer one there")
    redactor.hide(value)
    return value


def _refusal(name: str, reference: str, problem: str, fix: str) -> SpecError:
    return SpecError(field=f"environment.secrets.{name}", value=reference, problem=problem, fix=fix)


def _folder(place: str, cache: Path) -> Path:
    if "://" in place:
        return unpack(fetch(place), place, cache)
    path = Path(place).expanduser()
    if path.is_dir():
        return path.absolute()
    if path.is_file() and place.endswith(ARCHIVE):
        return unpack(path.read_bytes(), place, cache)
    problem = f"no such folder on {os.uname().nodename}"
    fix = f"give a folder or a {ARCHIVE} that every worker sees, or the URI of a {ARCHIVE}"
    raise SpecError(field="environment.working_dir", value=place, problem=problem, fix=fix)
