"""The one device of this process."""

from __future__ import annotations

import torch

from workers.worker.heap import keep_freed_memory


def own_memory_bytes(device: torch.device) -> int | None:
    """Of an accelerator; None where the device is host memory."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None


def choose(*, cpu: float | None) -> torch.device:
    """The GPU that the cluster gave this process (it sees no other), else the CPU with as many threads as asked."""
    if torch.cuda.is_available():
        device = torch.device("cuda", 0)
        torch.cuda.set_device(device)
        return device
    torch.set_num_threads(max(1, int(cpu or 1)))
    keep_freed_memory()
    return torch.device("cpu")
