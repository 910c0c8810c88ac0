"""Where generations meet: an actor of its own with the TCP store, outside the ranks and outside the controller.

In the controller it would need torch there, and its death would take the store from workers that live on; in a rank its
death would take the store from the generation that replaces it. A process of its own costs one import at the start.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

import ray
from ray.exceptions import RayActorError

from service.domain.wire import Brief
from workers.controller.names import actor_name
from workers.worker.messages import StoreAddress

log = logging.getLogger(__name__)

# A process with torch on a busy machine.
START_S = 120.0
# Orphaned workers still need the store for the checkpoint that they leave behind.
SAVE_S = 60.0
ASK_EVERY_S = 1.0
# The one node that stays as long as the cluster does, in Ray's words, and as little of it as Ray counts.
HEAD, HEAD_SHARE = "node:__internal_head__", 0.0001


class Rendezvous:
    """A plain class, made an actor by the controller. Leaves when no controller has called for `orphan_timeout_s`."""

    def __init__(self, orphan_timeout_s: float) -> None:
        self._orphan_timeout_s = orphan_timeout_s
        self._heard = time.monotonic()
        host = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        # Bound by us: TCPStore itself would listen on every interface.
        self._socket = socket.create_server((host, 0))
        self._address = StoreAddress(host=host, port=self._socket.getsockname()[1])
        self._store = _serve(self._address, self._socket.fileno())
        threading.Thread(target=self._watch, name="elastane-orphan", daemon=True).start()

    def address(self) -> StoreAddress:
        self._heard = time.monotonic()
        return self._address

    def _watch(self) -> None:
        while time.monotonic() - self._heard < self._orphan_timeout_s:
            time.sleep(1.0)
        # Only leaving the process frees a detached actor that nobody asks for.
        os._exit(0)


def _serve(address: StoreAddress, listening: int) -> Any:
    # Heavy, and only this actor needs it.
    from torch._C._distributed_c10d import TCPStore  # noqa: PLC0415

    return TCPStore(
        address.host, address.port, is_master=True, wait_for_workers=False, master_listen_fd=os.dup(listening)
    )


class MeetingPoint(Protocol):
    """Where generations meet."""

    def address(self) -> StoreAddress: ...

    def keep_alive(self) -> None:
        """Called every turn."""
        ...


class RendezvousPoint:
    """The controller's side of it: starts the actor, asks it often enough, replaces it when it died."""

    def __init__(self, brief: Brief, *, left: Sequence[Any] = ()) -> None:
        """`left`: those of an earlier controller; the newest serves the generation that stands, and so it goes on."""
        self._brief = brief
        for actor in left[:-1]:
            ray.kill(actor, no_restart=True)
        self._actor = left[-1] if left else self._start()
        self._ask()

    def address(self) -> StoreAddress:
        """Where the next generation meets: asked anew, since a dead one would cost its members a time-out."""
        try:
            address: StoreAddress = ray.get(self._actor.address.remote(), timeout=START_S)
        except RayActorError as error:
            self._replace(error)
            address = ray.get(self._asking, timeout=START_S)
        return address

    def keep_alive(self) -> None:
        """Let the actor know that somebody needs it; a dead one is replaced. A standing generation does not need it."""
        if time.monotonic() - self._asked_at < ASK_EVERY_S or not ray.wait([self._asking], timeout=0)[0]:
            return
        try:
            ray.get(self._asking)
        except RayActorError as error:
            self._replace(error)
        else:
            self._ask()

    def _replace(self, error: RayActorError) -> None:
        log.warning("the meeting point is gone, starting another: %s", error)
        self._actor = self._start()
        self._ask()

    def end(self) -> None:
        ray.kill(self._actor, no_restart=True)

    def _ask(self) -> None:
        self._asking: Any = self._actor.address.remote()
        self._asked_at = time.monotonic()

    def _start(self) -> Any:
        return (
            ray.remote(Rendezvous)
            .options(
                name=actor_name(self._brief, f"store-{secrets.token_hex(3)}"),
                namespace=self._brief.namespace,
                lifetime="detached",
                num_cpus=0,
                # No other node becomes idle, as a drained one must, while it is there.
                resources={HEAD: HEAD_SHARE},
            )
            .remote(self._brief.orphan_timeout_s + SAVE_S)
        )
