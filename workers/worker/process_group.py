"""The one owner of the process group. A new group per generation in the same process; an old one leaves nothing behind.

gloo on a CPU, NCCL on a GPU, by the same code. Nobody else stores the group or its backend: a reference kept anywhere
would keep the old connections open, and peers would wait for them until the time-out.
"""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed import distributed_c10d

from workers.worker.messages import StoreAddress
from workers.worker.whereabouts import GROUP_FILES

# Death is noticed by connections and by the controller; this bounds what neither sees.
COLLECTIVE_TIMEOUT_S = 600.0
STORE_TIMEOUT_S = 60.0


class PeerLinks:
    """Point-to-point among numbered participants. Use it and let it go: it keeps the backend alive."""

    def __init__(self, backend: Any, device: torch.device) -> None:
        self._backend = backend
        self._device = device

    def run(self, sends: Sequence[tuple[int, torch.Tensor]], receives: Sequence[tuple[int, torch.Tensor]]) -> None:
        """Post all at once and wait for all; the (peer, tensor) pairs of a peer match in order."""
        together = self._device.type == "cuda"
        if together:
            self._backend._start_coalescing()
        posted = [self._backend.send([tensor], peer, 0) for peer, tensor in sends]
        posted += [self._backend.recv([tensor], peer, 0) for peer, tensor in receives]
        if together:
            posted = [self._backend._end_coalescing()]
        for work in posted:
            work.wait()


class GroupOwner:
    """`meet`, `form`, `link` and `destroy` belong to the training thread; `void` may come from any thread."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._store: Store | None = None
        self._store_port = -1
        self._generation = 0
        self._void = -1
        self._inner_groups = 0
        self._own_ports: set[int] = set()
        self._ports: set[int] = set()

    @property
    def group(self) -> dist.ProcessGroup:
        """Ask anew for each use; do not keep."""
        group = dist.group.WORLD
        if group is None:
            raise RuntimeError("no process group: form a generation first")
        return group

    @property
    def store(self) -> Store:
        """The generation's own corner of the store."""
        if self._store is None:
            raise RuntimeError("no store: meet a generation first")
        return self._store

    def meet(self, generation: int, address: StoreAddress) -> None:
        """Leave the group before, enter the store's corner of `generation`."""
        self.destroy()
        self._generation, self._store_port, self._inner_groups = generation, address.port, 0
        client = TCPStore(
            address.host,
            address.port,
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(seconds=STORE_TIMEOUT_S),
        )
        self._store = PrefixStore(f"generation-{generation}", client)
        self._check()

    def form(self, *, rank: int, world_size: int) -> None:
        """The generation's group; returns when every member's connections stand. Raises where a member is gone."""
        nccl = self._device.type == "cuda"
        with self._connecting("group", number=rank, count=world_size):
            dist.init_process_group(
                "nccl" if nccl else "gloo",
                store=PrefixStore("group", self.store),
                rank=rank,
                world_size=world_size,
                timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S),
                device_id=self._device if nccl else None,
            )

    @contextmanager
    def including_new_groups(self) -> Iterator[None]:
        """What the members make of the group meanwhile, as an engine's groups of a part of the ranks, ends with it.
        Collective."""
        self._inner_groups += 1
        with self._connecting(f"inner-{self._inner_groups}", number=self.group.rank(), count=self.group.size()):
            yield

    def links(self) -> PeerLinks:
        """Among the members of the group, by rank."""
        return PeerLinks(self.group._get_backend(self._device), self._device)

    def wider_links(self, *, number: int, count: int) -> PeerLinks:
        """Among members and leavers: connections of their own, which end with the returned value."""
        store = PrefixStore("exchange", self.store)
        with self._connecting("exchange", number=number, count=count):
            if self._device.type == "cuda":
                # Absent from a build without NCCL, hence not imported by name.
                nccl: Any = distributed_c10d.ProcessGroupNCCL
                return PeerLinks(nccl(store, number, count, nccl.Options()), self._device)
            gloo = distributed_c10d.ProcessGroupGloo
            timeout = timedelta(seconds=COLLECTIVE_TIMEOUT_S)
            return PeerLinks(gloo(store, number, count, timeout=timeout), self._device)

    def exchange_with(
        self, sends: Sequence[tuple[int, torch.Tensor]], receives: Sequence[tuple[int, torch.Tensor]]
    ) -> None:
        """Point-to-point among the members, by rank: all at once."""
        self.links().run(sends, receives)

    def barrier(self) -> None:
        """Every member is here."""
        self.agree(0.0)

    def agree(self, value: float) -> float:
        """The largest of the members' values."""
        shared = torch.tensor([value], dtype=torch.float64, device=self._device)
        dist.all_reduce(shared, op=dist.ReduceOp.MAX, group=self.group)
        return float(shared.item())

    def destroy(self) -> None:
        """End the group and its connections at once, so that no peer waits for this rank."""
        if self._store is None:
            return
        self.abort()
        if dist.is_initialized():
            with suppress(RuntimeError, ValueError):
                dist.destroy_process_group()
        self._store = None
        self._own_ports.clear()
        self._ports.clear()

    def void(self, generation: int) -> None:
        """That generation, and any before it, is over: leave it if it stands, never form it."""
        self._void = max(self._void, generation)
        if self._generation <= generation:
            self.abort()

    def abort(self) -> None:
        """Make whatever waits in a collective or in the store fail now, here and at the peers."""
        if self._device.type == "cuda":
            # Every group of this process lives in the default one: the engine's queue of reductions too.
            for group in list(distributed_c10d._world.pg_map):
                with suppress(RuntimeError):
                    group._get_backend(self._device).abort()
        # gloo has no abort that frees anybody: its connected sockets are shut down, never its listening one.
        for connection in _connections():
            # A connection that closes meanwhile has no names any more, and needs no end.
            with suppress(OSError):
                local, remote = connection.getsockname()[1], connection.getpeername()[1]
                if local in self._own_ports or remote in self._ports or remote == self._store_port:
                    connection.shutdown(socket.SHUT_RDWR)

    def _check(self) -> None:
        """Called after each connection was made: `void` marks first and shuts second, so one of the two sees it."""
        if self._generation <= self._void:
            raise ConnectionAbortedError(f"generation {self._generation} ended before it was formed")

    @contextmanager
    def _connecting(self, name: str, *, number: int, count: int) -> Iterator[None]:
        """Learn every participant's listening ports: by them an abort tells our connections from all others."""
        before = set(_listening_ports())
        yield
        own = set(_listening_ports()) - before
        self.store.set(f"{name}-ports/{number}", ",".join(map(str, sorted(own))))
        listed = [self.store.get(f"{name}-ports/{peer}").decode() for peer in range(count)]
        self._check()
        self._own_ports |= own
        self._ports |= {int(port) for ports in listed for port in ports.split(",") if port}


def is_group_error(error: BaseException) -> bool:
    """Whether a failure is the group's (a peer or the network is gone) and another group would cure it."""
    if isinstance(error, dist.DistError | ConnectionError):
        return True
    # RuntimeErrors of gloo carry no class of their own: they are told by where they come out of.
    if not isinstance(error, RuntimeError):
        return False
    return any(GROUP_FILES.search(frame.filename) for frame in traceback.extract_tb(error.__traceback__))


def choose_interface(node_ip: str) -> None:
    """Make gloo listen where the cluster listens, unless the environment already says where."""
    if "GLOO_SOCKET_IFNAME" not in os.environ and node_ip.startswith("127."):
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"


def _sockets() -> Iterator[socket.socket]:
    """A duplicate of each TCP socket of this process, closed when the iteration goes on."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            duplicate = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with closing(duplicate):
            if duplicate.family in (socket.AF_INET, socket.AF_INET6) and duplicate.type == socket.SOCK_STREAM:
                yield duplicate


def _listening_ports() -> Iterator[int]:
    for each in _sockets():
        if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            yield each.getsockname()[1]


def _connections() -> Iterator[socket.socket]:
    for each in _sockets():
        if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            continue
        with suppress(OSError):
            each.getpeername()
            yield each
