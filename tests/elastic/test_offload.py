"""State on a disk: it moves with a resize, and a worker whose memory could not hold it trains."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.admission import admit
from service.domain.errors import SpecRefused
from service.domain.parsing import parse_spec
from service.domain.worker_memory import WorkerMemory
from tests.elastic.cluster import Bench
from tests.elastic.reference import largest_difference, undisturbed

# Real processes on a machine that others may use as well.
pytestmark = pytest.mark.timeout(900)

STEPS = 60
MEMORY_GB = 0.6
# 43 million parameters, 16 bytes of each are 680 MB; on the disk rest 8 of them.
BIG: dict[str, Any] = {
    "model": {"name": "gpt", "layers": 6, "width": 768, "heads": 8, "vocab": 64, "context": 64},
    "data": {"python": "tests.elastic.user_code:confined", "args": {"more_bytes": 620 * 10**6}},
    "stage": 1,
    "precision": "fp32",
    "workers": 1,
    "resources": {"cpu": 1, "memory_gb": MEMORY_GB},
    "training": {"steps": 2, "batch_size": 2, "micro_batch_size": 2, "seq_len": 8},
}


def test_state_on_a_disk_moves_with_a_resize_and_leaves_no_file(bench: Bench) -> None:
    spec = {**bench.spec(stage=3, steps=STEPS), "offload": "nvme"}
    with bench.attempt(spec, workers=1) as attempt:
        attempt.wait_step(3)
        for count in (2, 1):
            attempt.scale(count)
        bench.hurry()
        attempt.ends("succeeded")
    resized = attempt.service.events("resized")
    assert [(e.payload["from"], e.payload["to"], e.payload["redone_steps"]) for e in resized] == [(1, 2, 0), (2, 1, 0)]
    reference = undisturbed(spec, bench.folder / "cache")
    curve = attempt.service.curve()
    assert largest_difference(curve, {step: reference[step] for step in range(1, 51)}) < 1e-5
    assert list((bench.folder / "cache" / "offload").iterdir()) == []


def test_states_that_exceed_the_memory_of_a_worker_train_from_a_disk(bench: Bench) -> None:
    """The same job without offload is refused: it asks for less memory than its states take."""
    memory = WorkerMemory(device_bytes=int(MEMORY_GB * 2**30))
    with pytest.raises(SpecRefused) as caught:
        admit(parse_spec(BIG), size_of=None, memory=memory)
    assert [problem.field for problem in caught.value.problems] == ["resources.memory_gb"]
    spec = {**BIG, "offload": "nvme"}
    admit(parse_spec(spec), size_of=None, memory=memory)
    with bench.attempt(spec, workers=1) as attempt:
        attempt.ends("succeeded")
    measured = {sample.name: sample.value for fact in attempt.service.facts for sample in fact.samples or ()}
    assert measured["mem_nvme_bytes"] == measured["mem_optimizer_bytes"] == pytest.approx(8 * 42.7e6, rel=0.02)
    assert measured["mem_host_bytes"] < measured["mem_nvme_bytes"] / 2
