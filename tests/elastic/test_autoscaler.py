"""A real autoscaler: nodes come for what was granted, a job grows onto them in place, and no node outlives the need."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.elastic.autoscaling import Pool, pool, until
from tests.elastic.cluster import Bench
from tests.elastic.conftest import ROOT

pytestmark = pytest.mark.timeout(900)

COMES_S = 120.0
GOES_S = 90.0


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[Pool, Bench]]:
    with (
        tempfile.TemporaryDirectory(prefix="ea-", dir="/tmp") as folder,
        pool(Path(folder, "ray"), most=3) as found,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in {**found.environment, "PYTHONPATH": str(ROOT)}.items():
            patch.setenv(name, value)
        yield found, Bench(found.address, Path(folder))


def test_nodes_come_for_a_job_serve_it_and_go(nodes: tuple[Pool, Bench]) -> None:
    cluster, bench = nodes
    assert cluster.nodes() == []
    spec = bench.spec(stage=2, steps=100_000)
    with bench.attempt(spec, workers=1) as attempt:
        attempt.wait_step(3, within_s=COMES_S)
        assert len(cluster.nodes()) == 1
        first = attempt.service.pids()
        attempt.service.workers = 3
        attempt.wait_size(3, within_s=COMES_S)
        assert set(first) < set(attempt.service.pids()), "it grew in place"
        assert len(cluster.nodes()) == 3
        attempt.service.wait(lambda: attempt.service.events("resized"), within_s=60, what="a resize")
        assert attempt.service.events("resized")[0].payload["redone_steps"] == 0

        attempt.service.workers = 2
        attempt.wait_size(2)
        took_s = until(lambda: len(cluster.nodes()) == 2, within_s=GOES_S, what="node let go")
        print(f"an idle node went after {took_s:.1f} s")

        leaving, resizes = cluster.nodes()[0], len(attempt.service.events("resized"))
        assert cluster.hook(leaving) == 0, "no worker is left on the node, in time"
        attempt.service.wait(lambda: len(attempt.service.events("resized")) > resizes, within_s=60, what="a resize")
        attempt.wait_size(2, within_s=COMES_S)
        assert leaving not in cluster.nodes()
        assert attempt.service.events("worker_lost", "recovered") == []
        attempt.service.action = "cancel"
        attempt.ends("cancelled")
    took_s = until(lambda: not cluster.nodes(), within_s=GOES_S, what="empty pool")
    print(f"no node was left after {took_s:.1f} s")
    assert cluster.asked_for() == 0


def test_what_a_job_asked_for_is_asked_no_more_when_it_is_not_wanted_or_its_controller_is_dead(
    nodes: tuple[Pool, Bench],
) -> None:
    cluster, bench = nodes
    # No node is so large: what is asked for stays asked for.
    spec = {**bench.spec(stage=1, steps=100), "resources": {"cpu": 2}}
    with bench.attempt(spec, workers=3) as attempt:
        until(lambda: cluster.asked_for() == 3, within_s=COMES_S, what="demand for 3")
        attempt.service.workers = 1
        until(lambda: cluster.asked_for() == 1, within_s=30, what="demand for 1")
        until(lambda: "no node of the cluster has cpu: 2" in attempt.service.last.note, within_s=60, what="why")
        os.kill(attempt.process.pid, signal.SIGKILL)
        attempt.process.wait()
        until(lambda: cluster.asked_for() == 0, within_s=60, what="end of the demand")
    assert cluster.nodes() == []
