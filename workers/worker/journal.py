"""A worker's lines: whole in a file of JSON lines on its node, and within bounds in what the service is told."""

from __future__ import annotations

import atexit
import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, TextIO, cast

from service.domain.text import rfc3339
from workers.worker.messages import Line
from workers.worker.redaction import CleanStream, Redactor

Level = Literal["debug", "info", "warning", "error"]

LINE_CHARS = 2_000
# Lines told to the service: so many at once, then so many a second. The file keeps all.
BURST = 200.0
LINES_PER_S = 20.0


class Journal:
    """Thread-safe. `rank` is set when a generation gives one."""

    def __init__(
        self, path: Path, *, worker_id: str, tell: Callable[[Line], None], redactor: Redactor | None = None
    ) -> None:
        self.redactor = redactor or Redactor()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", buffering=1)
        self._worker_id = worker_id
        self._tell = tell
        self._lock = threading.Lock()
        self._allowance = BURST
        self._refilled_at = time.monotonic()
        self.rank: int | None = None
        self.generation = 0

    def write(self, level: Level, text: str) -> None:
        at, text = datetime.now(UTC), self.redactor.clean(text)
        entry = {
            "at": rfc3339(at),
            "level": level,
            "worker": self._worker_id,
            "rank": self.rank,
            "generation": self.generation,
            "text": text,
        }
        with self._lock:
            # A full disk costs lines, never the training that writes them.
            with suppress(OSError):
                self._file.write(json.dumps(entry) + "\n")
            told = self._may_tell()
        if told:
            self._tell(Line(at=at, level=level, text=text[:LINE_CHARS], rank=self.rank))

    def _may_tell(self) -> bool:
        now = time.monotonic()
        self._allowance = min(BURST, self._allowance + (now - self._refilled_at) * LINES_PER_S)
        self._refilled_at = now
        if self._allowance < 1.0:
            return False
        self._allowance -= 1.0
        return True


class JournalLog(logging.Handler):
    """Warnings and worse of any library, everything from info up of our own."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.INFO)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING or record.name.startswith("workers"):
            self._journal.write(_level(record.levelno), record.getMessage())


def capture_output(journal: Journal) -> None:
    """From now on this process's prints and logs are lines of the journal."""
    prints = CleanStream(sys.stdout, journal.redactor, tell=partial(journal.write, "info"))
    errors = CleanStream(sys.stderr, journal.redactor, tell=partial(journal.write, "warning"))
    sys.stdout, sys.stderr = cast(TextIO, prints), cast(TextIO, errors)
    for stream in (prints, errors):
        atexit.register(stream.finish)
    logging.getLogger().addHandler(JournalLog(journal))
    logging.getLogger("workers").setLevel(logging.INFO)


def _level(number: int) -> Level:
    if number >= logging.ERROR:
        return "error"
    return "warning" if number >= logging.WARNING else "info"
