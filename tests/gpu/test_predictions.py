"""What the plan says of a GPU's memory, against the engine's count between steps and the allocator's peak in one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from benchmarks.planner import PEAK_WITHIN, STATES_WITHIN, train
from service.domain.parsing import parse_spec
from service.domain.planning import STATES, rank_bytes
from service.domain.profile import profile_of
from service.domain.worker_memory import WorkerMemory
from workers.worker import probes
from workers.worker.assemble import build_engine, build_model

DEVICE = torch.device("cuda:0")
TRAINING = {"batch_size": 8, "micro_batch_size": 4, "seq_len": 256}


@pytest.mark.parametrize("offload", ["none", "cpu"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_allocator_sees_what_the_plan_says(
    stage: int, offload: str, nccl: dist.ProcessGroup, tmp_path: Path
) -> None:
    spec = parse_spec({"model": "gpt-small", "stage": stage, "offload": offload, "training": TRAINING})
    profile = profile_of(spec)
    assert profile is not None
    # The work space of matrix products is the library's and stays.
    torch.ones(64, 64, device=DEVICE, dtype=torch.bfloat16) @ torch.ones(64, 64, device=DEVICE, dtype=torch.bfloat16)
    before = torch.cuda.memory_allocated()
    engine = build_engine(build_model(spec), nccl, spec, DEVICE, folder=tmp_path)
    batches = [torch.randint(256, (4, 257), device=DEVICE) for _ in range(2)]
    train(engine, batches)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    train(engine, batches)
    peak = torch.cuda.max_memory_allocated() - before
    kinds = rank_bytes(spec, profile, stage=stage, workers=1)
    held = probes.memory(engine, DEVICE, activations_bytes=0)
    states = sum(held[f"mem_{kind}_bytes"] for kind in STATES)
    assert states == pytest.approx(sum(sum(kinds[kind].values()) for kind in STATES), rel=STATES_WITHIN)
    assert peak == pytest.approx(WorkerMemory(device_bytes=1, apart=True).needed(kinds), rel=PEAK_WITHIN)
    assert held["mem_capacity_bytes"] > peak
