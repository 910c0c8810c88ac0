"""Folders made once per machine and named after what is in them. The least recently entered go when others come.

Who entered one holds a shared lock on it as long as its process lives, so none is taken from under a running job; the
kernel drops the locks of a killed process. Only the empty files of the turns stay.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Beside those that are in use.
KEPT = 16
# Entered by this process: never closed.
_entered: dict[Path, int] = {}


def entered(folder: Path, make: Callable[[Path], None]) -> Path:
    """`folder`, made by `make` in a draft beside it where it is not there; from now on it is in use by this process."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _turn(folder):
        if not folder.is_dir():
            draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
            try:
                make(draft)
                os.rename(draft, folder)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        _hold(folder)
    with suppress(OSError):
        _prune(folder.parent)
    return folder


def _hold(folder: Path) -> None:
    # Some file systems of a network lock no folders; there nothing is ever removed.
    with suppress(OSError):
        os.utime(folder)
        if folder not in _entered:
            _entered[folder] = os.open(folder, os.O_RDONLY)
            fcntl.flock(_entered[folder], fcntl.LOCK_SH | fcntl.LOCK_NB)


def _prune(shelf: Path) -> None:
    """What fails is in use, about to be entered, or removed by another worker just now."""
    folders = [path for path in shelf.iterdir() if path.is_dir()]
    drafts = [path for path in folders if path.name.startswith(".")]
    whole = sorted((path for path in folders if path not in drafts), key=lambda path: -path.stat().st_mtime)
    for folder in whole[KEPT:]:
        with suppress(OSError), _turn(folder, wait=False), _alone(folder):
            # Renamed first: half a folder must not look like a whole one.
            os.rename(folder, draft := folder.with_name(f".{folder.name}-gone"))
            drafts.append(draft)
    for draft in drafts:
        # Those of a killed worker as well.
        with suppress(OSError), _turn(draft.with_name(draft.name[1:].rpartition("-")[0]), wait=False):
            shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Raises OSError where a process has entered it."""
    found = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(found)


@contextmanager
def _turn(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """The workers of one machine take turns; a killed one's turn is over."""
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
