"""Who lives and is of no use any more: a process that is silent, a worker that all others wait for."""

from __future__ import annotations

import logging

from workers.controller import hang
from workers.controller.generation import Generation
from workers.controller.group import WorkerGroup
from workers.controller.progress import Progress

log = logging.getLogger(__name__)


class Vigil:
    def __init__(self, group: WorkerGroup, progress: Progress, *, silence_s: float) -> None:
        self._group = group
        self._progress = progress
        self._silence_s = silence_s

    def silent(self) -> list[tuple[str, str]]:
        """(worker, why). A warm worker's reports are fetched without its training thread: silence is a stopped or cut
        off process."""
        return [
            (hand.id, f"its process has not answered for {hand.silent_s:.0f} s")
            for hand in self._group
            if hand.ready is not None and hand.silent_s > self._silence_s
        ]

    def hung(self, generation: Generation) -> hang.Hang | None:
        """No step within the limit, and somebody or something is the cause of it."""
        waited_s, limit_s = self._progress.waited_s, self._progress.limit_s
        if waited_s < limit_s:
            return None
        wheres = self._group.where(generation.members)
        found = hang.judge(generation.members, wheres, waited_s=waited_s, limit_s=limit_s)
        if found is not None:
            log.error("generation %d hangs: %s", generation.number, found.report)
        return found
