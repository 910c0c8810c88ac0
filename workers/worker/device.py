"""The one device of this process."""

from __future__ import annotations

import torch


def choose(*, cpu: float | None) -> torch.device:
    """The GPU that the cluster gave this process (it sees no other), else the CPU with as many threads as asked."""
    if torch.cuda.is_available():
        device = torch.device("cuda", 0)
        torch.cuda.set_device(device)
        return device
    torch.set_num_threads(max(1, int(cpu or 1)))
    return torch.device("cpu")
