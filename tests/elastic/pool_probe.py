"""`python -m tests.elastic.pool_probe ADDRESS`: for each line read, what Ray says of its nodes and what is asked for.

A process of its own: Ray reads its token once, when it is imported.
"""

from __future__ import annotations

import json
import sys

from ray.autoscaler.v2.sdk import get_cluster_status


def main(address: str) -> None:
    for _ in sys.stdin:
        status = get_cluster_status(address)
        demand = status.resource_demands
        kinds = (*demand.placement_group_demand, *demand.ray_task_actor_demand, *demand.cluster_constraint_demand)
        nodes = {node.node_id: node.ray_node_type_name for node in (*status.active_nodes, *status.idle_nodes)}
        asked_for = sum(each.count for kind in kinds for each in kind.bundles_by_count)
        print(json.dumps({"nodes": nodes, "asked_for": asked_for}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
