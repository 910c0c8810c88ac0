"""Files on this machine."""

from __future__ import annotations

import array
import asyncio
import glob
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from service.adapters.modules import lacking

SCAN_LIMIT_S = 5.0
ENDLESS = 2**63
DOCUMENT_LIMIT_BYTES = 2**20
# Of a file of tokens so many places are looked at, and so much at each.
LOOKS, LOOK_BYTES = 64, 2**16
TYPE_CODES = {"uint8": "B", "uint16": "H", "uint32": "I", "int32": "i", "int64": "q"}


class LocalFiles:
    """folder: where relative names of modules start from, as those of paths do."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path.cwd()

    async def size_bytes(self, pattern: str) -> int | None:
        return await _scanned(pattern, enough=ENDLESS)

    async def exists(self, pattern: str) -> bool:
        """The first file is enough: the rest of a folder is not walked."""
        return await _scanned(pattern, enough=0) is not None

    async def document(self, path: str) -> dict[str, Any] | None:
        return await asyncio.to_thread(_document, Path(path))

    async def token_range(self, pattern: str, dtype: str) -> tuple[int, int] | None:
        return await asyncio.to_thread(_token_range, pattern, TYPE_CODES[dtype])

    async def lacks(self, function: str) -> str | None:
        return await asyncio.to_thread(lacking, function, [str(self._folder), os.getcwd()])

    async def remove_folder(self, uri: str) -> None:
        if "://" not in uri:
            await asyncio.to_thread(_remove, Path(uri))


async def _scanned(pattern: str, *, enough: int) -> int | None:
    """A pattern may walk an endless tree: after some seconds the workers are left to find out."""
    try:
        return await asyncio.wait_for(asyncio.to_thread(_size_bytes, pattern, enough), SCAN_LIMIT_S)
    except TimeoutError:
        return ENDLESS


def _size_bytes(pattern: str, enough: int) -> int | None:
    until, found = time.monotonic() + SCAN_LIMIT_S, None
    try:
        for path in glob.iglob(os.path.expanduser(pattern), recursive=True):
            if os.path.isfile(path) and os.access(path, os.R_OK):
                found = (found or 0) + os.path.getsize(path)
                if found >= enough:
                    return found
            if time.monotonic() > until:
                return ENDLESS
    except (OSError, ValueError):
        return None
    return found


def _document(path: Path) -> dict[str, Any] | None:
    try:
        # Nothing that a read could wait for: a pipe, a device.
        if not path.is_file() or path.stat().st_size > DOCUMENT_LIMIT_BYTES:
            return None
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _token_range(pattern: str, code: str) -> tuple[int, int] | None:
    found = array.array(code)
    try:
        path = Path(next(glob.iglob(os.path.expanduser(pattern)), ""))
        size = path.stat().st_size // found.itemsize * found.itemsize if path.is_file() else 0
        if not size:
            return None
        stride = max(LOOK_BYTES, size // LOOKS // found.itemsize * found.itemsize)
        with path.open("rb") as file:
            for start in range(0, size, stride):
                file.seek(start)
                found.frombytes(file.read(min(LOOK_BYTES, size - start)))
    except (OSError, ValueError):
        return None
    return min(found), max(found)


def _remove(path: Path) -> None:
    if path.is_absolute() and path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
