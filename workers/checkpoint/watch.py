"""What can be seen and done of a save while it runs: how far it is, and that it shall end."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from workers.checkpoint.errors import CheckpointDropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Of this rank's file."""

    step: int
    written_bytes: int
    total_bytes: int


class Watch:
    """Thread-safe. The writer tells it of every block; whoever wants the save gone says `drop`."""

    def __init__(self, step: int) -> None:
        self.step = step
        self._dropped = threading.Event()
        self._written_bytes = self._total_bytes = 0

    @property
    def progress(self) -> Progress:
        return Progress(step=self.step, written_bytes=self._written_bytes, total_bytes=self._total_bytes)

    @property
    def is_dropped(self) -> bool:
        return self._dropped.is_set()

    def drop(self) -> None:
        self._dropped.set()

    def expect(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes

    def advance(self, size_bytes: int) -> None:
        """Raises CheckpointDropped where the save is not wanted any more."""
        self._written_bytes += size_bytes
        self.check()

    def check(self) -> None:
        if self.is_dropped:
            raise CheckpointDropped(step=self.step)

    def pause(self, seconds: float) -> None:
        """Wait for something else, but not longer than the save is wanted. Raises CheckpointDropped."""
        self._dropped.wait(seconds)
        self.check()
