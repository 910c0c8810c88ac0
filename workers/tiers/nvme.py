"""One file without a name on a fast disk, and a few buffers of host memory that its vectors pass through.

The file is unlinked while it is open: the system takes its space back when the process ends, however it ends. A buffer
keeps its vector until another one needs the room, and is written back by then; a thread moves the bytes meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import torch
from torch import Tensor

from workers.tiers.protocol import StateKey

# O_DIRECT wants addresses, offsets and lengths in whole blocks of the disk; 4096 suits every disk.
BLOCK_BYTES = 4096
# What a step works on, and what is on its way in or out.
DEPTH = 2


class OffloadFailed(OSError):
    """The folder of the offload cannot take, or give back, what rests there."""

    def __init__(self, folder: Path, error: OSError, *, size_bytes: int = 0) -> None:
        self.folder, self.problem = str(folder), error.strerror or str(error)
        self.fix = "free space there, or name a folder on a local disk that this process may write to"
        super().__init__(f"offload to {folder}, {size_bytes} bytes: {self.problem}; {self.fix}")


@dataclass(frozen=True, slots=True)
class _Extent:
    """Where a vector lies in the file; its length is a whole number of blocks."""

    offset: int
    length: int
    numel: int
    dtype: torch.dtype


class _Use(IntEnum):
    IDLE = 0
    AWAITED = 1
    LENT = 2


@dataclass(slots=True, eq=False)
class _Buffer:
    memory: Tensor
    key: StateKey | None = None
    use: _Use = _Use.IDLE
    changed: bool = False
    moving: Future[None] | None = None


class NvmeTier:
    name = "nvme"
    stays = False

    def __init__(self, folder: Path, *, pinned: bool) -> None:
        """Raises OffloadFailed, as `allocate` does where there is no space."""
        self._folder, self._pinned = folder, pinned
        self._file = _nameless(folder)
        self._size_bytes = 0
        self._extents: dict[StateKey, _Extent] = {}
        self._per_flat: Counter[int] = Counter()
        # The one used longest ago first.
        self._buffers: list[_Buffer] = []
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="offload")

    @property
    def staging_bytes(self) -> int:
        return sum(buffer.memory.numel() for buffer in self._buffers)

    def allocate(self, key: StateKey, *, numel: int, dtype: torch.dtype) -> None:
        length = -(-numel * dtype.itemsize // BLOCK_BYTES) * BLOCK_BYTES
        self._extents[key] = _Extent(self._size_bytes, length, numel, dtype)
        self._per_flat[key.flat] += 1
        if length:
            try:
                # Now, with a sentence, and not in the middle of a step. What was never written reads as zeros.
                space = os.fstatvfs(self._file.fileno())
                if length > space.f_bavail * space.f_frsize:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.posix_fallocate(self._file.fileno(), self._size_bytes, length)
            except OSError as error:
                raise OffloadFailed(self._folder, error, size_bytes=length) from error
        self._size_bytes += length

    def ahead(self, key: StateKey) -> None:
        if self._buffer_of(key) is None and (buffer := self._room(_Use.IDLE)) is not None:
            self._read(key, buffer, _Use.AWAITED)

    def fetch(self, key: StateKey) -> Tensor:
        buffer = self._buffer_of(key)
        if buffer is None:
            buffer = self._room(_Use.IDLE) or self._room(_Use.AWAITED)
            if buffer is None:
                raise RuntimeError(f"all {len(self._buffers)} buffers are lent: commit or release before {key}")
            self._read(key, buffer, _Use.LENT)
        moving, buffer.moving = buffer.moving, None
        if moving is not None:
            moving.result()
        self._touch(buffer, _Use.LENT)
        extent = self._extents[key]
        return buffer.memory.view(extent.dtype).narrow(0, 0, extent.numel)

    def release(self, key: StateKey) -> None:
        if (buffer := self._buffer_of(key)) is not None:
            self._touch(buffer, _Use.IDLE)

    def commit(self, key: StateKey, values: Tensor) -> None:
        lent = self.fetch(key)
        if lent.data_ptr() != values.data_ptr():
            lent.copy_(values)
        if (buffer := self._buffer_of(key)) is not None:
            buffer.changed = True
        self.release(key)

    def renewed(self) -> NvmeTier:
        return NvmeTier(self._folder, pinned=self._pinned)

    def _buffer_of(self, key: StateKey) -> _Buffer | None:
        return next((buffer for buffer in self._buffers if buffer.key == key), None)

    def _touch(self, buffer: _Buffer, use: _Use) -> None:
        buffer.use = use
        self._buffers.remove(buffer)
        self._buffers.append(buffer)

    def _room(self, use: _Use) -> _Buffer | None:
        """A buffer that may be filled: a new one while there are few, else the oldest of this use."""
        if len(self._buffers) < DEPTH * max(self._per_flat.values()):
            self._buffers.append(_Buffer(torch.empty(0, dtype=torch.uint8)))
            return self._buffers[-1]
        return next((buffer for buffer in self._buffers if buffer.use is use), None)

    def _read(self, key: StateKey, buffer: _Buffer, use: _Use) -> None:
        """Fill the buffer, behind the writing of every vector that has changed."""
        for each in self._buffers:
            if each.changed and each.use is _Use.IDLE and each.key is not None:
                each.changed = False
                self._move(os.pwritev, self._extents[each.key], each)
        extent = self._extents[key]
        if buffer.memory.numel() < extent.length:
            largest = max(each.length for each in self._extents.values())
            buffer.memory = _aligned(largest, pinned=self._pinned)
        buffer.key, buffer.changed = key, False
        self._move(os.preadv, extent, buffer)
        self._touch(buffer, use)

    def _move(self, call: Callable[..., int], extent: _Extent, buffer: _Buffer) -> None:
        """Behind what the buffer waits for. The job holds the file, so that it is not closed under it."""
        memory = buffer.memory.narrow(0, 0, extent.length).numpy().data
        file, folder, before = self._file, self._folder, buffer.moving

        def move() -> None:
            if before is not None:
                before.result()
            done = 0
            while done < len(memory):
                try:
                    moved = call(file.fileno(), [memory[done:]], extent.offset + done)
                    if moved == 0:
                        raise OSError(errno.EIO, "the file has been cut")
                except OSError as error:
                    raise OffloadFailed(folder, error, size_bytes=len(memory)) from error
                done += moved

        buffer.moving = self._disk.submit(move)


def _nameless(folder: Path) -> io.FileIO:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="offload-", dir=folder)
        os.unlink(name)
        _leave_out_the_page_cache(handle)
        return io.FileIO(handle, "r+")
    except OSError as error:
        raise OffloadFailed(folder, error) from error


def _leave_out_the_page_cache(handle: int) -> None:
    """Where the file system can, and its blocks are not larger than ours."""
    flags = fcntl.fcntl(handle, fcntl.F_GETFL)
    try:
        fcntl.fcntl(handle, fcntl.F_SETFL, flags | os.O_DIRECT)
        os.pwritev(handle, [_aligned(BLOCK_BYTES, pinned=False).zero_().numpy().data], 0)
    except OSError:
        fcntl.fcntl(handle, fcntl.F_SETFL, flags)


def _aligned(size_bytes: int, *, pinned: bool) -> Tensor:
    memory = torch.empty(size_bytes + BLOCK_BYTES, dtype=torch.uint8, pin_memory=pinned)
    return memory.narrow(0, -memory.data_ptr() % BLOCK_BYTES, size_bytes)
