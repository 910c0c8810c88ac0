"""Files on this machine."""

from __future__ import annotations

import asyncio
import glob
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

SCAN_LIMIT_S = 5.0
ENDLESS = 2**63
DOCUMENT_LIMIT_BYTES = 2**20


class LocalFiles:
    async def size_bytes(self, pattern: str) -> int | None:
        """A pattern may walk an endless tree: after some seconds the workers are left to find out."""
        try:
            return await asyncio.wait_for(asyncio.to_thread(_size_bytes, pattern), SCAN_LIMIT_S)
        except TimeoutError:
            return ENDLESS

    async def document(self, path: str) -> dict[str, Any] | None:
        return await asyncio.to_thread(_document, Path(path))

    async def remove_folder(self, uri: str) -> None:
        if "://" not in uri:
            await asyncio.to_thread(_remove, Path(uri))


def _size_bytes(pattern: str) -> int | None:
    until, found = time.monotonic() + SCAN_LIMIT_S, None
    try:
        for path in glob.iglob(os.path.expanduser(pattern), recursive=True):
            if os.path.isfile(path) and os.access(path, os.R_OK):
                found = (found or 0) + os.path.getsize(path)
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


def _remove(path: Path) -> None:
    if path.is_absolute() and path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
