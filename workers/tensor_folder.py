"""A folder of safetensors as Hugging Face writes it: one file, or several with an index."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from workers.layout.interval import Interval

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"


class NoTensors(ValueError):
    """The folder has no tensors that can be read; the message names the file and what to do."""


def tensor_files(folder: Path) -> dict[str, str]:
    """tensor -> file. Raises NoTensors."""
    if (folder / INDEX).is_file():
        index: dict[str, str] = json.loads((folder / INDEX).read_text())["weight_map"]
        if outside := sorted({file for file in index.values() if Path(file).name != file}):
            raise NoTensors(f"{folder / INDEX} names {outside[0]!r}, which is not in the folder")
        return index
    if not (folder / SINGLE).is_file():
        raise NoTensors(f"{folder} holds neither {SINGLE} nor {INDEX}; other formats are pickles: convert them")
    with safe_open(folder / SINGLE, framework="pt") as file:
        return {name: SINGLE for name in file.keys()}  # noqa: SIM118 - not a mapping


def shape_in(file: Path, name: str) -> tuple[int, ...]:
    with safe_open(file, framework="pt") as opened:
        return tuple(int(size) for size in opened.get_slice(name).get_shape())


def read_interval(file: Path, name: str, interval: Interval) -> Tensor:
    """A part of a tensor's row-major flat index; only the rows that it touches are read."""
    with safe_open(file, framework="pt") as opened:
        part = opened.get_slice(name)
        shape = part.get_shape()
        if not shape or 0 in shape:
            whole: Tensor = opened.get_tensor(name).reshape(-1)
            return whole[interval.start : interval.stop]
        row = 1
        for size in shape[1:]:
            row *= size
        first, last = interval.start // row, -(-interval.stop // row)
        rows: Tensor = part[first:last].reshape(-1)
        # A copy: the rows belong to the mapped file.
        return rows[interval.start - first * row : interval.stop - first * row].clone()
