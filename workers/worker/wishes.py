"""What the controller wants of a running loop. Set by control threads, read once per step by the training thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes:
    """This rank's part of the tally; a wish that any rank has becomes the whole group's at the same boundary."""

    stop: bool = False
    save: bool = False
    leave: bool = False


class Wishes:
    """Thread-safe. A wish names its generation; one for another generation is not this loop's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop_generation = -1
        self._save: tuple[int, str] | None = None
        self._owed = False

    def stop(self, generation: int) -> None:
        with self._lock:
            self._stop_generation = generation

    def save(self, generation: int, request_id: str) -> None:
        with self._lock:
            self._save = (generation, request_id)

    def owe_a_save(self) -> None:
        """One was dropped for the sake of a new generation: the next boundary makes up for it."""
        with self._lock:
            self._owed = True

    def votes(self, generation: int, *, orphaned: bool) -> Votes:
        with self._lock:
            return Votes(
                stop=self._stop_generation == generation,
                save=self._owed or (self._save is not None and self._save[0] == generation),
                leave=orphaned,
            )

    def take_save(self, generation: int) -> str | None:
        """The id of the wish for a checkpoint, which is now met."""
        with self._lock:
            self._owed = False
            if self._save is None or self._save[0] != generation:
                return None
            request_id, self._save = self._save[1], None
            return request_id
