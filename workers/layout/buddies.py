"""Who mirrors whose shard: each worker has one buddy and is one, on another machine where that can be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from workers.layout.layout import Owner


def choose(nodes: Mapping[Owner, str]) -> dict[Owner, Owner]:
    """worker -> the worker that mirrors it; `nodes` says on which machine each one is. Nobody alone has a buddy.

    One mirror each, so that host memory stays even. Pairs share a machine only where it has more than half of all
    workers, and then as few as can be.
    """
    by_node: dict[str, list[Owner]] = defaultdict(list)
    for worker, node in nodes.items():
        by_node[node].append(worker)
    groups = sorted(by_node.values(), key=len, reverse=True)
    ring = [worker for group in groups for worker in group]
    if len(ring) < 2:
        return {}
    # Machines lie in runs along the ring, and none is longer than the shift: it leads out of every run.
    shift = len(groups[0]) if len(groups) > 1 else 1
    return {worker: ring[(place + shift) % len(ring)] for place, worker in enumerate(ring)}
