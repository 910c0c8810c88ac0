"""What one rank can see of itself: bytes by kind, the process, the wire."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from workers.engine.protocol import Engine
from workers.engine.states import StateKind
from workers.worker.device import own_memory_bytes

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
OPTIMIZER = frozenset(StateKind) - {StateKind.PARAM, StateKind.GRAD}


def process_bytes() -> int:
    """Resident memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


def available_bytes() -> int:
    """What the machine could still give."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


class ActivationMeter:
    """The bytes that autograd keeps of one forward, measured where they are asked for; 0 before.

    A GPU's allocator knows its peak; on a CPU the saved tensors are counted, once per storage, parameters left out.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self.peak_bytes = 0

    @contextmanager
    def measure(self) -> Iterator[None]:
        kept: dict[int, int] = {}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            # At stage 3 parameters come and go: whose storage this is can only be asked now.
            if storage.data_ptr() not in self._addresses():
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            yield
        self.peak_bytes = max(self.peak_bytes, sum(kept.values()))

    def _addresses(self) -> set[int]:
        """Of the parameters; FSDP2's sharded ones have no storage that autograd could keep."""
        # Known by what only they have: importing their class would make each worker start a quarter later.
        present = (param for param in self._model.parameters() if not hasattr(param, "to_local"))
        return {param.untyped_storage().data_ptr() for param in present}


def memory(engine: Engine, device: torch.device, *, activations_bytes: int) -> dict[str, float]:
    """The per-rank series of the contract."""
    footprint = engine.footprint()
    kinds = {kind: float(sum(tiers.values())) for kind, tiers in footprint.by_kind.items()}
    tiers = Counter[str]()
    for sizes in footprint.by_kind.values():
        tiers.update(sizes)
    values = {
        "mem_params_bytes": kinds.get(StateKind.PARAM, 0.0) + footprint.buffers_bytes,
        "mem_grads_bytes": kinds.get(StateKind.GRAD, 0.0),
        "mem_optimizer_bytes": sum(kinds.get(kind, 0.0) for kind in OPTIMIZER),
        "mem_gathered_peak_bytes": float(footprint.gathered_peak_bytes),
        "mem_activations_peak_bytes": float(activations_bytes),
        "mem_process_bytes": float(process_bytes()),
        "mem_host_bytes": float(tiers["cpu"] + footprint.staging_bytes),
        "mem_nvme_bytes": float(tiers["nvme"]),
        "comm_bytes": float(engine.traffic().bytes_sent),
    }
    if device.type == "cuda":
        states = tiers["device"] + footprint.buffers_bytes + footprint.gathered_peak_bytes
        peak = float(torch.cuda.max_memory_allocated(device))
        values["mem_activations_peak_bytes"] = max(0.0, peak - states)
        values["mem_capacity_bytes"] = float(own_memory_bytes(device) or 0)
    return values
