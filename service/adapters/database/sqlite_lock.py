"""One service per SQLite file: two would lead the same jobs."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from service.domain.errors import HomeInUse


class FileLock:
    """An advisory lock beside the file. The kernel lets go of it when the process dies, however it dies."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_suffix(database.suffix + ".lock")
        self._descriptor: int | None = None

    def take(self) -> None:
        """Raises HomeInUse."""
        if self._descriptor is not None:
            return
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise HomeInUse(path=str(self._path.parent), holder=holder) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
