"""Room for one worker, asked of Ray before the worker is made.

Ray's autoscaler counts a pending placement group as demand, and one that the driver owns goes with the driver. A worker
that waits as an actor would be demand too, but a detached one outlives its controller: its job would be over and nodes
would still start for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group


class Reservation:
    """A placement group of one bundle; it takes the room itself, so it is left right before the worker is made."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._group = placement_group([bundle(options)])

    def stands(self) -> bool:
        """Whether a node has the room, kept for it."""
        return bool(placement_group_table(self._group).get("state") == "CREATED")

    def leave(self) -> None:
        remove_placement_group(self._group)


def bundle(options: Mapping[str, Any]) -> dict[str, float]:
    """What a worker with these options takes, in the words of a placement group."""
    asked = {"CPU": options.get("num_cpus", 0), "GPU": options.get("num_gpus", 0), "memory": options.get("memory", 0)}
    taken = {name: float(amount) for name, amount in asked.items() if amount}
    if accelerator := options.get("accelerator_type"):
        # A node has 1 of its kind; Ray's own option takes as little of it.
        taken[f"accelerator_type:{accelerator}"] = 0.001
    return taken
