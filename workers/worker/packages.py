"""Packages that a job adds: installed once per machine and list, beside what the worker has and never over it.

Not by Ray's own `pip`: it copies the interpreter's whole environment, gigabytes of torch, for each list, and may put
another torch under a process that has imported one. Here what is installed already satisfies or refuses.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from service.domain.environment import EnvironmentSpec
from workers.user_code import SourceUnreachable, SpecError
from workers.worker.kept import entered

log = logging.getLogger(__name__)

FIELD = "environment.pip"
INSTALL_S = 1200.0
# What pip writes where its index does not answer, before it says that there is no such package.
UNREACHABLE = ("NewConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "NameResolutionError", "ProxyError")


def packages(environment: EnvironmentSpec, *, cache: Path, clean: Callable[[str], str]) -> Path:
    """The folder to import them from. Raises SpecError with pip's own words, SourceUnreachable."""
    folder = cache / "packages" / _digest(environment)
    return _library(entered(folder, lambda draft: _install(environment.pip, draft, clean)))


def _digest(environment: EnvironmentSpec) -> str:
    """Of the list, the interpreter, and what else decides what pip finds: its variables, files of this machine."""
    told = {**environment.variables, **environment.secrets}
    asks = {name: value for name, value in told.items() if name.startswith("PIP_")}
    files = [os.stat(path).st_mtime_ns for path in environment.pip if os.path.exists(path)]
    key = json.dumps([sys.version, sys.prefix, list(environment.pip), sorted(asks.items()), files])
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _library(folder: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))


def _install(wanted: tuple[str, ...], folder: Path, clean: Callable[[str], str]) -> None:
    """Into an environment of its own that sees this interpreter's packages and cannot remove them."""
    log.info("installing %s", ", ".join(wanted))
    venv.create(folder, with_pip=False, symlinks=True)
    paths = [path for path in sys.path if path and os.path.isdir(path)]
    (_library(folder) / "of_the_worker.pth").write_text("\n".join(paths))
    (folder / "constraints.txt").write_text("\n".join(sorted(_installed())))
    try:
        done = subprocess.run(
            [
                # -P: not the user's modules, which are in the present folder.
                *(sys.executable, "-P", "-m", "pip", "--python", str(folder / "bin" / "python"), "install"),
                *("--disable-pip-version-check", "--no-input", "--progress-bar", "off"),
                *("--constraint", str(folder / "constraints.txt"), "--", *wanted),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=INSTALL_S,
        )
    except subprocess.TimeoutExpired:
        raise SourceUnreachable(f"{FIELD} = {list(wanted)}: not installed within {INSTALL_S:.0f} s") from None
    if done.returncode:
        _refuse(wanted, clean((done.stdout + done.stderr).decode(errors="replace")))


def _installed() -> Iterator[str]:
    for found in metadata.distributions():
        if found.metadata["Name"]:
            yield f"{found.metadata['Name']}=={found.version}"


def _refuse(wanted: tuple[str, ...], said: str) -> None:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")] or lines[-1:]
    words = " ".join(told)[:400]
    if any(word in said for word in UNREACHABLE):
        raise SourceUnreachable(f"{FIELD} = {list(wanted)}: pip's index could not be reached: {words}")
    fix = "name packages that pip finds here, and that agree with what the workers have"
    raise SpecError(field=FIELD, value=list(wanted), problem=f"pip says: {words}", fix=fix)
