"""A worker whose controller is gone must go too, whatever its training thread is stuck in."""

from __future__ import annotations

import threading
from collections.abc import Callable

LOOK_EVERY_S = 1.0
# The training thread leaves by itself, with a checkpoint, where it can; this long after its limit it cannot.
GRACE_S = 120.0
# A controller asks for reports as soon as the actor stands; one that never does died before.
FIRST_WORD_S = 60.0


class OrphanWatch:
    """Calls `leave` once nobody has called for too long. Its thread ends with the process, or with `end`."""

    def __init__(
        self,
        *,
        silence_s: Callable[[], float],
        was_heard: Callable[[], bool],
        limit_s: float,
        leave: Callable[[str], None],
        every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._silence_s = silence_s
        self._was_heard = was_heard
        self._limit_s = limit_s
        self._leave = leave
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="elastane-orphan", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def complaint(self) -> str | None:
        """Why to leave now, or None."""
        if not self._was_heard():
            limit_s = min(FIRST_WORD_S, self._limit_s)
            return "before any controller said a first word" if self._silence_s() > limit_s else None
        return "stuck in its training thread" if self._silence_s() > self._limit_s + GRACE_S else None

    def _watch(self) -> None:
        while not self._over.wait(self._every_s):
            complaint = self.complaint()
            if complaint is not None:
                self._leave(complaint)
                return
