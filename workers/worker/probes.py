"""What one rank can see of itself: bytes by kind, the process, the wire."""

from __future__ import annotations

import os

import torch

from workers.engine.protocol import Engine
from workers.engine.states import StateKind

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
OPTIMIZER = (StateKind.MASTER, StateKind.EXP_AVG, StateKind.EXP_AVG_SQ)


def process_bytes() -> int:
    """Resident memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


def memory(engine: Engine, device: torch.device) -> dict[str, float]:
    """The per-rank series of the contract that this device can tell."""
    footprint = engine.footprint()
    kinds = {kind: float(sum(tiers.values())) for kind, tiers in footprint.by_kind.items()}
    values = {
        "mem_params_bytes": kinds.get(StateKind.PARAM, 0.0) + footprint.buffers_bytes,
        "mem_grads_bytes": kinds.get(StateKind.GRAD, 0.0),
        "mem_optimizer_bytes": sum(kinds.get(kind, 0.0) for kind in OPTIMIZER),
        "mem_gathered_peak_bytes": float(footprint.gathered_peak_bytes),
        "mem_process_bytes": float(process_bytes()),
        "comm_bytes": float(engine.traffic().bytes_sent),
    }
    if device.type == "cuda":
        states = sum(values[f"mem_{name}_bytes"] for name in ("params", "grads", "optimizer", "gathered_peak"))
        peak = float(torch.cuda.max_memory_allocated(device))
        values["mem_activations_peak_bytes"] = max(0.0, peak - states)
    return values
