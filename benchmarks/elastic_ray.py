"""The driver of Ray Train elastic; its cluster of one-worker nodes obeys `add`, `drain`, `stop` on standard input."""

from __future__ import annotations

import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

import ray
import ray.train
from ray.cluster_utils import Cluster
from ray.train.torch import TorchTrainer

from benchmarks.elastic_peer import train


def obey(cluster: Any, nodes: list[Any]) -> None:
    for line in sys.stdin:
        word = line.strip()
        if word == "add":
            nodes.append(cluster.add_node(num_cpus=1, resources={"slot": 1}))
        elif word == "drain":
            cluster.remove_node(nodes.pop(), allow_graceful=True)
        else:
            return


def main() -> None:
    folder = Path(sys.argv[1])
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "_temp_dir": tempfile.mkdtemp(prefix="el-")},
    )
    nodes = [cluster.add_node(num_cpus=1, resources={"slot": 1}) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False)
    # Its type hints are those of the former version.
    scaling: Any = ray.train.ScalingConfig
    trainer = TorchTrainer(
        partial(train, folder),
        scaling_config=scaling(
            num_workers=(1, 3), resources_per_worker={"CPU": 1, "slot": 1}, elastic_resize_monitor_interval_s=1.0
        ),
        run_config=ray.train.RunConfig(
            storage_path=str(folder / "results"), failure_config=ray.train.FailureConfig(max_failures=-1)
        ),
    )
    threading.Thread(target=trainer.fit, daemon=True).start()
    obey(cluster, nodes)
    ray.shutdown()
    cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
