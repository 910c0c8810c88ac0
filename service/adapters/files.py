"""Files on this machine."""

from __future__ import annotations

import asyncio
import glob
import os
import shutil
from itertools import islice
from pathlib import Path

SCAN_LIMIT = 10_000


class LocalFiles:
    def matches(self, pattern: str) -> bool:
        """Whether a readable file matches; a pattern that matches an endless tree is given up after `SCAN_LIMIT`."""
        try:
            found = islice(glob.iglob(os.path.expanduser(pattern), recursive=True), SCAN_LIMIT)
            return any(os.path.isfile(path) and os.access(path, os.R_OK) for path in found)
        except (OSError, ValueError):
            return False

    async def remove_folder(self, uri: str) -> None:
        if "://" not in uri:
            await asyncio.to_thread(_remove, Path(uri))


def _remove(path: Path) -> None:
    if path.is_absolute() and path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
