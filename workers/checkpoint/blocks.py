"""Checksums of a file and of each of its blocks: what is read is proved, without reading what is not needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import xxhash

from workers.checkpoint.errors import CheckpointDamaged
from workers.checkpoint.store import Source

# A multiple of every element's size, so that no element lies across two blocks.
BLOCK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Checksum:
    """xxh3-128 in hex: `blocks` of every `block_bytes` of the file, `xxh3_128` of their digests one after the other.

    So each byte is counted once: a second pass over all of them would cost a tenth of the writing.
    """

    size_bytes: int
    xxh3_128: str
    block_bytes: int
    blocks: tuple[str, ...]


class Checksummer:
    """Counts a file's bytes as they are written."""

    def __init__(self, block_bytes: int = BLOCK_BYTES) -> None:
        self._block_bytes = block_bytes
        self._block = xxhash.xxh3_128()
        self._blocks: list[bytes] = []
        self._size_bytes = 0

    def update(self, data: memoryview) -> None:
        while data:
            room = self._block_bytes - self._size_bytes % self._block_bytes
            part, data = data[:room], data[room:]
            self._block.update(part)
            self._size_bytes += len(part)
            if len(part) == room:
                self._end_block()

    def finish(self) -> Checksum:
        if self._size_bytes % self._block_bytes:
            self._end_block()
        return Checksum(
            size_bytes=self._size_bytes,
            xxh3_128=xxhash.xxh3_128_hexdigest(b"".join(self._blocks)),
            block_bytes=self._block_bytes,
            blocks=tuple(digest.hex() for digest in self._blocks),
        )

    def _end_block(self) -> None:
        self._blocks.append(self._block.digest())
        self._block = xxhash.xxh3_128()


class VerifiedFile:
    """A file of a checkpoint that gives out no byte before its block was proved. Keeps one block in memory."""

    def __init__(self, source: Source, checksum: Checksum, *, step: int, name: str) -> None:
        self._source, self._checksum, self._step, self._name = source, checksum, step, name
        if source.size_bytes != checksum.size_bytes:
            raise self.damaged(f"has {source.size_bytes} bytes, {checksum.size_bytes} were written")
        self._memory = memoryview(bytearray(min(checksum.block_bytes, checksum.size_bytes)))

    def damaged(self, reason: str) -> CheckpointDamaged:
        return CheckpointDamaged(step=self._step, file=self._name, reason=reason)

    def blocks(self, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, memoryview]]:
        """The blocks that hold the byte ranges, each once and in order: (its place in the file, its bytes).

        The memory is used again for the next block.
        """
        size = self._checksum.block_bytes
        wanted = sorted({i for start, stop in ranges for i in range(start // size, -(-stop // size))})
        self._source.expect([(i * size, min((i + 1) * size, self._checksum.size_bytes)) for i in wanted])
        for index in wanted:
            yield index * size, self._block(index)

    def read(self, start: int, stop: int) -> bytes:
        """The bytes `start <= i < stop`."""
        if not 0 <= start <= stop <= self._checksum.size_bytes:
            raise self.damaged(f"ends at {self._checksum.size_bytes}, bytes {start} to {stop} should be there")
        parts = self.blocks([(start, stop)])
        return b"".join(bytes(data[max(0, start - place) : stop - place]) for place, data in parts)

    def _block(self, index: int) -> memoryview:
        start = index * self._checksum.block_bytes
        buffer = self._memory[: min(self._checksum.block_bytes, self._checksum.size_bytes - start)]
        count = self._source.read_into(start, buffer)
        if count != len(buffer):
            raise self.damaged(f"ends at byte {start + count} of {self._checksum.size_bytes}")
        if xxhash.xxh3_128_hexdigest(buffer) != self._checksum.blocks[index]:
            raise self.damaged(f"was changed: checksum of bytes {start} to {start + count} is not what was written")
        return buffer
