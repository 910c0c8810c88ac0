"""A member's saves: one in flight at a time, told by rank 0, and made up for where it was dropped."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from torch._C._distributed_c10d import Store

from workers.engine.protocol import Engine
from workers.worker.checkpoints import REPORT_PATIENCE_S, Checkpoints
from workers.worker.loop import Place
from workers.worker.messages import Saved, SaveFailed, Saving
from workers.worker.outbox import Outbox
from workers.worker.wishes import Wishes

# A save that takes long says so again and again.
PROGRESS_EVERY_S = 10.0


class Saves:
    """Owned by the training thread; `_tell` is called by the saver's as well."""

    def __init__(self, checkpoints: Checkpoints, *, outbox: Outbox, wishes: Wishes, overlap: bool) -> None:
        """`overlap`: the copy may be made while gradients are computed."""
        self._checkpoints = checkpoints
        self._outbox = outbox
        self._wishes = wishes
        self.overlap = overlap
        self._place = Place(generation=0, rank=-1, world_size=0)
        self._members: Sequence[str] = ()
        # Of the last save behind training: where, by whom, since when, and how long it held training.
        self._taken_at = (-1, -1)
        self._takers: frozenset[str] = frozenset()
        self._began = self._told_at = 0.0
        self._held_s = 0.0
        self._last: Saved | SaveFailed | None = None

    def enter(self, place: Place, members: Sequence[str], *, from_disk: bool) -> None:
        """A new generation, before the engine moves into it. A save in flight goes on from its snapshot where all who
        took it are still there; else some report will never come, and it is dropped, whole."""
        self._checkpoints.before_update()
        if from_disk or not self._takers.issubset(members):
            self._checkpoints.give_up()
        self._place, self._members = place, members

    @property
    def in_flight(self) -> bool:
        """Part of the group's vote. Tells of a long save on the way."""
        progress, now = self._checkpoints.progress, time.perf_counter()
        is_ours = progress is not None and progress.step == self._taken_at[1] and self._place.rank == 0
        if progress is not None and is_ours and now - self._told_at > PROGRESS_EVERY_S:
            self._tell_progress(now, progress.written_bytes, progress.total_bytes)
        return self._checkpoints.is_busy

    def before_update(self) -> None:
        """Returns when the state may change."""
        began = time.perf_counter()
        self._checkpoints.before_update()
        self._held_s += time.perf_counter() - began

    def behind(self, step: int, engine: Engine, *, skipped: int) -> None:
        """Take the snapshot of this boundary; every rank calls it where the group agreed that no save is in flight."""
        began = self._began = time.perf_counter()
        self._taken_at, self._takers = (self._place.generation, step), frozenset(self._members)
        self._last, self._held_s = None, 0.0
        tell = partial(self._tell, self._wishes.take_save(self._place.generation))
        if self._place.rank == 0:
            self._tell_progress(began, 0, 0)
        self._checkpoints.save_behind(
            step, engine=engine, place=self._place, skipped=skipped, tell=tell, overlap=self.overlap
        )
        self._held_s = time.perf_counter() - began

    def at_once(self, step: int, engine: Engine, *, skipped: int, store: Store) -> None:
        """Nothing follows before this boundary is saved; one that was taken of it behind training is waited for."""
        began = time.perf_counter()
        request_id = self._wishes.take_save(self._place.generation)
        self._checkpoints.settle(REPORT_PATIENCE_S)
        if self._taken_at == (self._place.generation, step) and self._stands(step, store):
            found = self._last
        else:
            found = self._checkpoints.save(step, engine=engine, place=self._place, store=store, skipped=skipped)
        self._held_s = time.perf_counter() - began
        if found is not None:
            self._tell(request_id, found)

    def _stands(self, step: int, store: Store) -> bool:
        """Whether the save behind training of this very boundary was published: rank 0 knows."""
        key = f"stands/{step}"
        if self._place.rank == 0:
            store.set(key, str(int(isinstance(self._last, Saved))))
        return bool(int(store.get(key)))

    def _tell(self, request_id: str | None, outcome: Saved | SaveFailed) -> None:
        """From any thread. A save outlives the generation that took it, and is news of the present one."""
        self._last = outcome
        if isinstance(outcome, SaveFailed) and outcome.dropped:
            self._wishes.owe_a_save()
        news = replace(outcome, generation=self._place.generation, request_id=request_id)
        self._outbox.put(replace(news, pause_s=self._held_s) if isinstance(news, Saved) else news)

    def _tell_progress(self, now: float, written_bytes: int, total_bytes: int) -> None:
        self._told_at = now
        self._outbox.put(
            Saving(
                generation=self._place.generation,
                step=self._taken_at[1],
                written_bytes=written_bytes,
                total_bytes=total_bytes,
                elapsed_s=now - self._began,
            )
        )
