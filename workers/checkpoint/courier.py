"""Reports of one save through the store itself: they outlive the group that saved, its connections and its generation.

A report lies beside its file as `save-GENERATION-rank-RANK.partial`; rank 0 removes them. What a kill leaves is swept
as every other partial file is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from workers.checkpoint import places
from workers.checkpoint.store import PARTIAL, Store, read_whole

# A listing costs nothing in a folder and a request in an object store.
LOOK_EVERY_S = 0.25


class StoreCourier:
    """For a save that runs behind training. `generation` tells this try at the step from any other of the attempt."""

    def __init__(
        self,
        store: Store,
        *,
        job: str,
        step: int,
        generation: int,
        rank: int,
        world_size: int,
        patience_s: float,
        look_every_s: float = LOOK_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._folder = places.step_folder(job, step)
        self._stem = f"save-{generation:08d}-rank-"
        self._rank = rank
        self._expected = {f"{self._stem}{other:05d}{PARTIAL}" for other in range(1, world_size)}
        self._patience_s = patience_s
        self._clock = clock
        self._look_every_s = look_every_s
        self._look_at = 0.0
        self._gave_up_at: float | None = None

    def send(self, text: str) -> None:
        self._store.put(f"{self._folder}/{self._stem}{self._rank:05d}{PARTIAL}", text.encode())

    def arrived(self) -> Sequence[str] | None:
        """Raises TimeoutError where a report is still awaited `patience_s` after the first look."""
        now = self._clock()
        if self._gave_up_at is None:
            self._gave_up_at = now + self._patience_s
        if self._expected and now < self._look_at:
            return None
        self._look_at = now + self._look_every_s
        lacking = self._expected - set(self._store.names(self._folder)) if self._expected else set()
        if not lacking:
            return self._taken()
        if now > self._gave_up_at:
            ranks = ", ".join(sorted(name.removeprefix(self._stem).removesuffix(PARTIAL) for name in lacking))
            raise TimeoutError(f"no report of rank {ranks} came within {self._patience_s:.0f} s")
        return None

    def _taken(self) -> list[str]:
        texts = [read_whole(self._store, f"{self._folder}/{name}").decode() for name in sorted(self._expected)]
        for name in self._expected:
            self._store.delete(f"{self._folder}/{name}")
        return texts
