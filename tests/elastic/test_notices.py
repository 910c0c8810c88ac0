"""Workers leave in order where the end of their machine, or their own, is announced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.elastic.cluster import Bench, end_process, gone, nodes_with, ray_nodes

# Real processes on a machine that others may use as well.
pytestmark = pytest.mark.timeout(900)


def test_a_node_that_is_drained_is_left_for_another_one_before_its_time(bench: Bench) -> None:
    spec = bench.spec(stage=2, steps=10_000) | {"resources": {"cpu": 1, "accelerator": "DRAINED"}}
    with ray_nodes(bench.address, 2, accelerator="DRAINED") as nodes, bench.attempt(spec, workers=1) as attempt:
        attempt.wait_step(5)
        before = attempt.service.pids()
        workers = nodes_with("DRAINED", address=bench.address)
        drained = next(node for node, names in workers.items() if names)
        command = [sys.executable, "-m", "workers.drain", "--address", bench.address, "--node", drained]
        assert subprocess.run([*command, "--within", "90"], timeout=120, check=False).returncode == 0
        attempt.service.wait(lambda: attempt.service.events("resized"), what="a resize")
        (notice,), (resized,) = attempt.service.events("notice"), attempt.service.events("resized")
        assert notice.payload["reason"] == "its node is drained"
        assert 0 < notice.payload["left_s"] <= 90
        assert (resized.payload["from"], resized.payload["to"], resized.payload["redone_steps"]) == (1, 1, 0)
        assert gone(before)
        assert attempt.service.events("worker_lost", "recovered") == []
        attempt.service.wait(
            lambda: sum(node.poll() is None for node in nodes) == 1, within_s=60, what="an idle node that Ray ends"
        )
        attempt.service.action = "cancel"
        attempt.ends("cancelled")


def test_a_worker_that_gets_sigterm_hands_over_and_is_replaced(bench: Bench) -> None:
    with bench.attempt(bench.spec(stage=3, steps=10_000), workers=3) as attempt:
        attempt.wait_step(5)
        attempt.wait_size(3)
        before = attempt.service.pids()
        os.kill(before[1], signal.SIGTERM)
        attempt.service.wait(lambda: attempt.service.events("notice"), within_s=5, what="a notice")
        assert gone([before[1]])
        attempt.wait_size(3)
        attempt.service.wait(lambda: len(attempt.service.events("resized")) == 2, what="two resizes")
        sizes = [(event.payload["from"], event.payload["to"]) for event in attempt.service.events("resized")]
        assert sizes == [(3, 2), (2, 3)]
        assert [event.payload["redone_steps"] for event in attempt.service.events("resized")] == [0, 0]
        assert attempt.service.events("worker_lost", "recovered") == []
        pids = attempt.service.pids()
        assert set(before) - {before[1]} < set(pids)
        end_process(attempt.process)
        assert gone(pids), "SIGTERM of a controller leaves no worker"
        outcome = attempt.ends("paused")
        assert outcome.reason == f"checkpoint of step {attempt.service.last.step} saved"
