"""One save in flight, in a thread of the worker's process, while training goes on.

The writer's work is system calls and hashing, both outside Python's lock; its thread asks the scheduler for less than
training does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from workers.checkpoint.errors import CheckpointDropped
from workers.checkpoint.watch import Progress, Watch

NICENESS = 5

# Does one save; told by the watch when it is no longer wanted.
Work = Callable[[Watch], None]


class BackgroundSaver:
    """Owned by the training thread; `work` runs in the saver's."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._watch: Watch | None = None
        self._failure: BaseException | None = None

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def progress(self) -> Progress | None:
        """Of the save in flight."""
        return self._watch.progress if self._watch is not None and self.is_busy else None

    def start(self, step: int, work: Work) -> None:
        """Returns at once. Raises RuntimeError while a save is in flight: ask `is_busy`, or `settle` first."""
        if self.is_busy:
            raise RuntimeError(f"a save is in flight ({self.progress}): settle it before that of step {step}")
        self.check()
        watch = Watch(step)
        self._watch = watch
        self._thread = threading.Thread(target=self._run, args=(work, watch), name=f"save-{step}", daemon=True)
        self._thread.start()

    def settle(self, timeout_s: float) -> bool:
        """Wait for the save in flight to end; after `timeout_s` drop it, whole. Returns whether it came to its end.

        When it returns, nothing reads the snapshot and nothing writes a file.
        """
        if self._thread is None or self._watch is None:
            return True
        self._thread.join(timeout_s)
        ended = not self._thread.is_alive()
        if not ended:
            self._watch.drop()
            self._thread.join()
        self._thread = None
        self.check()
        return ended

    def give_up(self) -> None:
        """Tell the save in flight to end unpublished. Returns at once; `is_busy` says when nothing is left of it."""
        if self._watch is not None:
            self._watch.drop()

    def check(self) -> None:
        """Raises what a save raised that was no failure to save, but a defect."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self, work: Work, watch: Watch) -> None:
        with suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        try:
            work(watch)
        except CheckpointDropped:
            return
        except Exception as error:
            # Raised again in the training thread, whose border reports it.
            self._failure = error
