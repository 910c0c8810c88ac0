"""The safetensors format, written as a stream: 8 bytes of header length, a JSON header, then the raw bytes.

The library's own writer wants every tensor in memory at once; the format itself is a page
(https://github.com/huggingface/safetensors, "Format").
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.checkpoint import dtypes
from workers.checkpoint.blocks import VerifiedFile

ALIGNMENT = 64
MAX_HEADER_BYTES = 100_000_000  # the library's own limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One tensor of a file; `start` and `stop` are bytes after the header."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def lay_out(tensors: Sequence[tuple[str, str, tuple[int, ...]]]) -> tuple[Entry, ...]:
    """(key, dtype, shape) one after the other, without gaps; larger elements first keeps all of them aligned."""
    ordered = sorted(tensors, key=lambda tensor: -dtypes.itemsize(tensor[1]))
    entries: list[Entry] = []
    place = 0
    for key, dtype, shape in ordered:
        size = dtypes.itemsize(dtype)
        for dim in shape:
            size *= dim
        entries.append(Entry(key=key, dtype=dtype, shape=shape, start=place, stop=place + size))
        place += size
    if len({entry.key for entry in entries}) < len(entries):
        raise ValueError("two tensors of one file have the same key")
    return tuple(entries)


def encode_header(entries: Sequence[Entry], metadata: Mapping[str, str]) -> bytes:
    """The file's first bytes; padded with spaces, so that the data start aligned."""
    document: dict[str, Any] = {"__metadata__": dict(metadata)}
    for entry in entries:
        document[entry.key] = {
            "dtype": dtypes.safetensors_name(entry.dtype),
            "shape": list(entry.shape),
            "data_offsets": [entry.start, entry.stop],
        }
    text = json.dumps(document, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return struct.pack("<Q", len(text)) + text


def data_places(file: VerifiedFile) -> dict[str, tuple[int, int]]:
    """key -> the tensor's bytes in the file, from its proved header."""
    (length,) = struct.unpack("<Q", file.read(0, 8))
    if length > MAX_HEADER_BYTES:
        raise file.damaged(f"has a header of {length} bytes")
    first = 8 + length
    try:
        document = json.loads(file.read(8, first))
        offsets = {key: entry["data_offsets"] for key, entry in document.items() if key != "__metadata__"}
        return {key: (first + int(start), first + int(stop)) for key, (start, stop) in offsets.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise file.damaged(f"has a header that cannot be read ({error})") from error
