"""The state of one step in host memory: training pauses for this copy at most, and for nothing else of a save.

The memory is kept from save to save. A fresh one costs more than the copy: each of its pages is zeroed at the first
touch (seen: three times the time of the copy itself).
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from workers.checkpoint.dtypes import itemsize, torch_dtype
from workers.checkpoint.parts import BUFFER, Part

ALIGNMENT = 64
# Of what the machine could still give: a snapshot must not be what ends a job for lack of memory.
MOST_OF_AVAILABLE = 0.8
MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class _Room:
    """Where a part's bytes lie."""

    start: int
    size_bytes: int


class SnapshotMemory:
    """Of one rank: as many bytes as the rank writes, in one block. Used by one snapshot at a time."""

    def __init__(self, *, pinned: bool = False) -> None:
        """`pinned` memory takes copies from a GPU without a stop per tensor."""
        self._pinned = pinned
        self._memory = torch.empty(0, dtype=torch.uint8)

    @property
    def size_bytes(self) -> int:
        return self._memory.numel()

    def reserve(self, parts: Sequence[Part]) -> None:
        """Touch the memory that these parts will need, off the pause: at a join, or in the writer's thread.

        Raises MemoryError where the machine has no room for a second copy: save at once then.
        """
        _, size_bytes = _rooms(parts)
        if size_bytes > self.size_bytes:
            self.release()
            _check_room(size_bytes)
            self._memory = _touched(size_bytes, pinned=self._pinned)

    def begin(self, parts: Sequence[Part]) -> Snapshot:
        """A snapshot whose copy may be made while training computes gradients: what a forward can change (buffers) is
        copied now, and the rest changes in the update alone, before which training calls `Snapshot.wait`.

        Raises MemoryError as `reserve` does, before anything is copied.
        """
        _, size_bytes = _rooms(parts)
        if size_bytes > self.size_bytes:
            _check_room(size_bytes)
        return Snapshot(self, [_kept_now(part) if part.name.startswith(f"{BUFFER}/") else part for part in parts])

    def capture(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """The same parts with the values of now. They are this memory's: valid until the next capture or release.

        Raises MemoryError as `reserve` does.
        """
        self.reserve(parts)
        rooms, _ = _rooms(parts)
        frozen = tuple(self._copied(part, room) for part, room in zip(parts, rooms, strict=True))
        if self._pinned:
            torch.accelerator.synchronize()
        return frozen

    def release(self) -> None:
        """Give the memory back: a worker that leaves, or a state that shrank for good."""
        self._memory = torch.empty(0, dtype=torch.uint8)

    def _copied(self, part: Part, room: _Room) -> Part:
        values = part.values().detach()
        if values.numel() != part.interval.numel or values.dtype != torch_dtype(part.dtype):
            raise ValueError(
                f"{part.key}: {values.numel()} elements of {values.dtype} were given, "
                f"{part.interval.numel} of {part.dtype} were announced"
            )
        kept = self._memory.narrow(0, room.start, room.size_bytes).view(values.dtype)
        kept.copy_(values.reshape(-1), non_blocking=self._pinned)
        return replace(part, values=partial(_given, kept))


class Snapshot:
    """Of one step, being taken: `take` by the thread that copies, `wait` by the one that trains."""

    def __init__(self, memory: SnapshotMemory, parts: Sequence[Part]) -> None:
        self._memory = memory
        self._parts = parts
        self._taken = threading.Event()

    def take(self) -> tuple[Part, ...]:
        """Make the copy; training may update when this returns, and also when it fails."""
        try:
            return self._memory.capture(self._parts)
        finally:
            self._taken.set()

    def wait(self) -> None:
        """Until the state may change. Call it before every update and before the engine moves to another group."""
        self._taken.wait()


def _kept_now(part: Part) -> Part:
    return replace(part, values=partial(_given, part.values().detach().clone()))


def _given(kept: Tensor) -> Tensor:
    return kept


def _rooms(parts: Sequence[Part]) -> tuple[list[_Room], int]:
    """One after the other, aligned for any element type; and the sum."""
    rooms: list[_Room] = []
    place = 0
    for part in parts:
        size_bytes = part.interval.numel * itemsize(part.dtype)
        rooms.append(_Room(place, size_bytes))
        place += -(-size_bytes // ALIGNMENT) * ALIGNMENT
    return rooms, place


def _check_room(size_bytes: int) -> None:
    if not MEMINFO.exists():
        return
    fields = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    if size_bytes > MOST_OF_AVAILABLE * available:
        raise MemoryError(f"a snapshot takes {size_bytes} bytes, the machine has {available} available")


def _touched(size_bytes: int, *, pinned: bool) -> Tensor:
    if pinned:
        return torch.zeros(size_bytes, dtype=torch.uint8, pin_memory=True)
    block = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(block, dtype=torch.uint8).zero_()
