"""Where state rests. A tier answers fetch and commit; it never asks why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from workers.engine.states import StateKind


@dataclass(frozen=True, slots=True)
class StateKey:
    """One kind of state of one flat vector on this rank."""

    flat: int
    kind: StateKind


class Tier(Protocol):
    """A place for 1-D tensors by key. What `fetch` returns may be changed in place until `commit`."""

    @property
    def name(self) -> str: ...

    def allocate(self, key: StateKey, *, numel: int, dtype: torch.dtype) -> None:
        """Zeros, here."""
        ...

    def ahead(self, key: StateKey) -> None:
        """Start to bring the values near; `fetch` of the key comes soon."""
        ...

    def fetch(self, key: StateKey) -> torch.Tensor: ...

    def commit(self, key: StateKey, values: torch.Tensor) -> None:
        """The values are final until the next fetch."""
        ...

    def drop(self, key: StateKey) -> None: ...
