"""`python -m workers.drain --within 60`: for the preStop hook of a Ray node's container.

Tells Ray that this node is about to go. The controllers take their workers away from it, with all that they hold; this
returns when the last one has left (exit status 0), or when the time is over (1). Status 2: Ray refused.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
import time

import ray
from ray.core.generated.autoscaler_pb2 import DRAIN_NODE_REASON_PREEMPTION  # type: ignore[attr-defined]

from workers.controller.ray_tables import workers_on

log = logging.getLogger("workers.drain")

LOOK_EVERY_S = 0.5
LEFT, LATE, REFUSED = 0, 1, 2


def main(argv: list[str]) -> int:
    arguments = _arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # Whatever this hangs in, also inside Ray: nobody waits for it longer than was said.
    timer = threading.Timer(arguments.within, _late, (arguments.within,))
    timer.daemon = True
    timer.start()
    ray.init(address=arguments.address, log_to_driver=False, logging_level=logging.WARNING)
    context = ray.get_runtime_context()
    node = arguments.node or context.get_node_id()
    refusal = _announce(context.gcs_address, node, within_s=arguments.within)
    if refusal is not None:
        log.error("Ray does not drain node %s: %s", node, refusal)
        return REFUSED
    while workers := workers_on(node):
        log.info("%d workers are still on node %s: %s", len(workers), node, ", ".join(workers))
        time.sleep(LOOK_EVERY_S)
    log.info("no worker is left on node %s", node)
    return LEFT


def _announce(gcs_address: str, node: str, *, within_s: float) -> str | None:
    """Why Ray refused, or None."""
    client = ray._raylet.GcsClient(address=gcs_address)  # type: ignore[attr-defined]
    by_ms = int((time.time() + within_s) * 1000)
    accepted, refusal = client.drain_node(node, DRAIN_NODE_REASON_PREEMPTION, "its machine is about to end", by_ms)
    return None if accepted else str(refusal)


def _late(within_s: float) -> None:
    log.error("%.0f s are over", within_s)
    logging.shutdown()
    os._exit(LATE)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workers.drain", description="Let our workers leave this node.")
    parser.add_argument("--within", type=float, default=60.0, metavar="S", help="seconds until the node may be gone")
    parser.add_argument("--address", default="auto", help="Ray's address; by default that of this machine")
    parser.add_argument("--node", default=None, metavar="ID", help="Ray's id of the node; by default this one")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
