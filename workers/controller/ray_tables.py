"""What Ray says in its own tables and nowhere in public: with another release of Ray this file is read again.

Its driver must be connected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ray

from workers.controller.names import OURS
from workers.worker.actor import Worker


def draining_nodes() -> dict[str, int]:
    """Ray's id of each node that is being drained -> its deadline in ms since the epoch, 0 for none."""
    # Its own trainer asks here too.
    found: dict[str, int] = ray._private.state.state.get_draining_nodes()
    return found


def workers_on(node_id: str) -> list[str]:
    """Names of the workers, of all jobs, that live on that node."""
    alive = (actor for actor in _ours("ALIVE") if actor["ActorClassName"] == Worker.__name__)
    return sorted(actor["Name"] for actor in alive if actor["Address"]["NodeID"] == node_id)


def begun() -> set[str]:
    """Names of our actors, of all jobs, that have a slot and a process, though it may not answer yet."""
    actors = (*_ours("PENDING_CREATION"), *_ours("ALIVE"))
    return {actor["Name"] for actor in actors if actor["Address"]["Port"]}


def _ours(state: str) -> Iterator[dict[str, Any]]:
    actors = ray._private.state.state.actor_table(None, None, state).values()
    return (actor for actor in actors if actor["Name"].startswith(OURS))
