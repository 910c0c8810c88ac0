"""How full the disks are that the service writes to."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def room(folders: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """name -> (free, size) in bytes, of those folders that are this machine's. A bucket has no end."""
    found = {}
    for name, folder in folders.items():
        if "://" not in folder:
            with suppress(OSError):
                usage = shutil.disk_usage(_nearest(Path(folder)))
                found[name] = (usage.free, usage.total)
    return found


def _nearest(folder: Path) -> Path:
    """It, or the folder in which it will be made."""
    return next(each for each in (folder, *folder.absolute().parents) if each.exists())
