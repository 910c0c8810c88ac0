"""Where state rests. A tier answers fetch and commit; it never asks why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from workers.optimizers.kinds import StateKind


@dataclass(frozen=True, slots=True)
class StateKey:
    """One kind of state of one flat vector on this rank."""

    flat: int
    kind: StateKind


class Tier(Protocol):
    """A place for 1-D tensors by key. What `fetch` returns may be changed in place until `commit`, which makes it final
    until the next fetch, or `release`, for what is unchanged."""

    @property
    def name(self) -> str: ...

    @property
    def stays(self) -> bool:
        """Whether what `fetch` returns is where the values rest: a view of it outlives `release` and `commit`."""
        ...

    @property
    def staging_bytes(self) -> int:
        """Memory that it keeps to bring values near."""
        ...

    def allocate(self, key: StateKey, *, numel: int, dtype: torch.dtype) -> None:
        """Zeros, here."""
        ...

    def ahead(self, key: StateKey) -> None:
        """Start to bring the values near; `fetch` of the key comes soon."""
        ...

    def fetch(self, key: StateKey) -> torch.Tensor: ...

    def release(self, key: StateKey) -> None: ...

    def commit(self, key: StateKey, values: torch.Tensor) -> None: ...

    def renewed(self) -> Tier:
        """An empty tier of the same kind and place; this one keeps what it has."""
        ...
