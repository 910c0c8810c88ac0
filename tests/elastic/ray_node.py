"""`python -m tests.elastic.ray_node ADDRESS ACCELERATOR`: one more node of a Ray on loopback, with a slot for a worker.

It says when it is there. It goes when it is told to, or when Ray has ended it: a drained node, as soon as it is idle.
"""

from __future__ import annotations

import signal
import sys
import time

from ray._private.node import Node
from ray._private.parameter import RayParams


def main(address: str, accelerator: str) -> None:
    # `ray start` would take another address than loopback for a second node.
    params = RayParams(
        gcs_address=address,
        node_ip_address="127.0.0.1",
        num_cpus=1,
        num_gpus=0,
        resources={f"accelerator_type:{accelerator}": 1},
        object_store_memory=100_000_000,
        min_worker_port=0,
        max_worker_port=0,
        node_manager_port=0,
        include_log_monitor=False,
    )
    params.dashboard_agent_listen_port = None
    node = Node(params, head=False, shutdown_at_exit=True, spawn_reaper=False)
    print("registered", flush=True)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    while not node.dead_processes():
        time.sleep(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
