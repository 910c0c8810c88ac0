"""The GPUs of this machine, without importing a library that knows them."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    name: str
    memory_bytes: int


def gpus() -> tuple[Gpu, ...]:
    """By index; none where there is no driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    query = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        listing = subprocess.run(query, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    rows = [line.rsplit(",", 1) for line in listing.stdout.splitlines() if "," in line]
    return tuple(
        Gpu(name=name.strip(), memory_bytes=int(mebibytes) * 2**20)
        for name, mebibytes in rows
        if mebibytes.strip().isdigit()
    )
