"""Processes of this machine, found by what they are rather than by a number that may have been given to another one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

_PROC = Path("/proc")


def commands() -> dict[int, list[str]]:
    """pid -> arguments, of every process of ours that is not a zombie."""
    if not _PROC.is_dir():
        return _commands_by_ps()
    found = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                raw = (entry / "cmdline").read_bytes()
                if raw:
                    found[int(entry.name)] = raw.decode(errors="replace").rstrip("\0").split("\0")
    return found


def _commands_by_ps() -> dict[int, list[str]]:
    listing = subprocess.run(["ps", "-axo", "pid=,command="], capture_output=True, text=True, check=False).stdout
    rows = (line.split() for line in listing.splitlines())
    return {int(row[0]): row[1:] for row in rows if len(row) > 1}


def with_arguments(words: Sequence[str]) -> list[int]:
    """Processes whose arguments contain all the words, ourselves left out."""
    own = os.getpid()
    return sorted(pid for pid, args in commands().items() if pid != own and all(word in args for word in words))


def has_arguments(pid: int, words: Sequence[str]) -> bool:
    """Whether this process lives and its arguments contain all the words. One that is about to be gone has none."""
    if not _PROC.is_dir():
        return all(word in _commands_by_ps().get(pid, []) for word in words)
    try:
        args = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    return all(word in args for word in words)


def with_environment(entry: str) -> list[int]:
    """Processes that were started with NAME=VALUE in their environment, and their descendants. Linux only.

    Ourselves left out. A process that gives itself a title overwrites its environment: then only its parent tells.
    """
    wanted, own, found = entry.encode(), os.getpid(), set[int]()
    if not _PROC.is_dir():
        return []
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and int(folder.name) != own:
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(int(folder.name))
    return sorted(pid for pid in found | _descendants(found) - {own} if is_alive(pid))


def _descendants(ancestors: set[int]) -> set[int]:
    parents = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                # After the command in brackets, which may hold anything: the state, then the parent's pid.
                parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
    below, front = set[int](), set(ancestors)
    while front := {pid for pid, parent in parents.items() if parent in front and pid not in below}:
        below |= front
    return below


def is_alive(pid: int) -> bool:
    """A zombie is not alive: it holds nothing any more."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return (_PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return not _PROC.is_dir()


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end(pids: Iterable[int], *, grace_s: float) -> None:
    """SIGTERM, then SIGKILL for those that are left; returns when they are gone, at the latest a little after."""
    left = [pid for pid in pids if is_alive(pid)]
    send(left, signal.SIGTERM)
    left = _wait(left, grace_s)
    send(left, signal.SIGKILL)
    _wait(left, 2.0)


def _wait(pids: list[int], limit_s: float) -> list[int]:
    until = time.monotonic() + limit_s
    while (pids := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    return pids
