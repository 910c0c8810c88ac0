"""A file of `torch.save` that another program wrote: tensors, numbers and containers are taken out of its pickle.

torch's restricted reader makes nothing else. The classes of other objects are not imported, so that the program that
wrote them need not be installed; an empty stand-in takes their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from workers.checkpoint.foreign import ImportRefused


class Opaque:
    """An object that was left out; `fields` are the attributes that it had."""

    fields: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, *_: object) -> None:
        """Whatever it was made of."""

    def __setstate__(self, state: object) -> None:
        self.fields = state if isinstance(state, dict) else {}


def read_torch_file(file: Path) -> Any:
    """What the file holds. Tensors are mapped: their bytes are read when they are used. Raises ImportRefused."""
    try:
        with safe_globals([(Opaque, name) for name in get_unsafe_globals_in_checkpoint(file)]):
            return torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    except Exception as error:
        # Of torch's reader, of zip files and of pickles there is no one tree of errors.
        raise ImportRefused(f"{file} cannot be read ({error}): copy it again, or save again with torch.save") from error
