"""The endless, seeded order of samples: a pure function of (seed, position), with random access and no table.

Each epoch is a keyed pseudo-random permutation of the samples: a Feistel network over a rectangle a x b >= size, walked
again while it lands outside (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002, section 4 and 3).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache

ROUNDS = 8
MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Permutation:
    """A bijection of 0..size-1, decided by (seed, epoch). O(1) per element, whatever the size."""

    size: int
    keys: tuple[int, ...]

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(f"{index} is not in 0..{self.size - 1}")
        rows = math.isqrt(self.size - 1) + 1
        columns = -(-self.size // rows)
        index = self._encrypt(index, rows, columns)
        # The walk stays on the cycle of a permutation of the rectangle, so it comes back inside, and no two meet.
        while index >= self.size:
            index = self._encrypt(index, rows, columns)
        return index

    def _encrypt(self, index: int, rows: int, columns: int) -> int:
        row, column = divmod(index, columns)
        for turn in range(0, ROUNDS, 2):
            row = (row + _mix(column ^ self.keys[turn])) % rows
            column = (column + _mix(row ^ self.keys[turn + 1])) % columns
        return row * columns + column


@lru_cache(maxsize=16)
def permutation(*, size: int, seed: int, epoch: int) -> Permutation:
    """The order of one epoch."""
    key = hashlib.blake2b(f"order {seed} {epoch}".encode(), digest_size=8 * ROUNDS).digest()
    return Permutation(size=size, keys=tuple(int.from_bytes(key[i : i + 8], "little") for i in range(0, len(key), 8)))


def sample_at(position: int, *, size: int, seed: int) -> int:
    """The sample at a position of the endless order: epoch `position // size`, every sample once in each."""
    epoch, index = divmod(position, size)
    return permutation(size=size, seed=seed, epoch=epoch)[index]


def _mix(x: int) -> int:
    """The finaliser of splitmix64 (Steele et al., 2014): a well mixed 64-bit bijection."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)
