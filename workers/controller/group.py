"""The attempt's workers as Ray actors: asked for one by one, polled, told, ended. No placement group over all of them.

Names are derived from job, attempt and worker, so that a later attempt finds what an earlier one left behind.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError

from service.domain.wire import Brief
from workers.controller.launches import launches
from workers.controller.names import actor_name
from workers.controller.ray_tables import begun, draining_nodes
from workers.controller.reservation import Reservation
from workers.worker.actor import Worker
from workers.worker.messages import Adopted, NotOwner, Ready, Report
from workers.worker.whereabouts import Where

log = logging.getLogger(__name__)

# Fetches wait inside the worker; they have a thread of their own, so that an order never waits behind one.
ACTOR: Any = ray.remote(concurrency_groups={"reports": 1, "control": 2})(Worker)  # type: ignore[call-overload]
# How long a worker holds a fetch that has nothing to answer.
FETCH_S = 0.5
LONGEST_TURN_S = 1.0
ANSWER_WHERE_S = 3.0


@dataclass(slots=True, kw_only=True)
class Hand:
    """A worker that was asked for: it has an `actor`, or a `reservation` until then; `heard` once its process answers,
    `ready` once it is warm. `silent_s`: it has not answered for so long, of the time that this process was awake."""

    id: str
    actor: Any = None
    reservation: Reservation | None = None
    ready: Ready | None = None
    heard: bool = False
    silent_s: float = 0.0
    after: int = -1
    fetching: Any = None

    @property
    def node(self) -> str:
        return self.ready.node if self.ready is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    hand: Hand
    reason: str


@dataclass(slots=True, kw_only=True)
class Haul:
    """What one poll brought. `disowned`: a newer attempt has adopted these workers."""

    reports: list[tuple[str, Report]] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    disowned: bool = False


class WorkerGroup:
    """Belongs to the controller's one thread."""

    def __init__(self, brief: Brief, *, options: dict[str, Any]) -> None:
        self._brief = brief
        self._options = options
        self._hands: dict[str, Hand] = {}
        self._born = 0
        self._polled_at = time.monotonic()

    def __contains__(self, worker: str) -> bool:
        return worker in self._hands

    def __iter__(self) -> Iterator[Hand]:
        return iter(self._hands.values())

    def __len__(self) -> int:
        return len(self._hands)

    def __getitem__(self, worker: str) -> Hand:
        return self._hands[worker]

    def spawn(self) -> str:
        """Ask for one more worker; it reports Ready when it is warm."""
        self._born += 1
        worker = f"a{self._brief.attempt_number}-w{self._born}"
        self._hands[worker] = Hand(id=worker, reservation=Reservation(self._options))
        return worker

    def end(self, worker: str) -> None:
        """Kill it; nothing more is heard of it."""
        hand = self._hands.pop(worker, None)
        if hand is not None and hand.reservation is not None:
            hand.reservation.leave()
        elif hand is not None:
            ray.kill(hand.actor, no_restart=True)

    def end_all(self) -> None:
        for worker in list(self._hands):
            self.end(worker)

    def release_all(self) -> None:
        """End those that no newer attempt has adopted; each decides for itself."""
        for hand in list(self._hands.values()):
            if hand.reservation is not None:
                self.end(hand.id)
            self.tell(hand.id, "release")
        self._hands.clear()

    def adopt(self, actor: Any, adopted: Adopted) -> None:
        """A worker of an earlier attempt is this one's now."""
        self._hands[adopted.worker_id] = Hand(id=adopted.worker_id, actor=actor, ready=adopted.ready, heard=True)

    def tell(self, worker: str, method: str, *args: object) -> None:
        """Call without waiting; a worker that is gone is noticed by the next poll."""
        hand = self._hands.get(worker)
        if hand is not None and hand.actor is not None:
            getattr(hand.actor, method).remote(self._brief.attempt_number, *args)

    def poll(self, wait_s: float) -> Haul:
        """New reports and deaths, waiting up to `wait_s` for the first."""
        haul = Haul()
        self._occupy()
        placed = [hand for hand in self._hands.values() if hand.actor is not None]
        for hand in placed:
            if hand.fetching is None:
                hand.fetching = hand.actor.fetch.remote(self._brief.attempt_number, hand.after, FETCH_S)
        by_ref = {hand.fetching: hand for hand in placed}
        if not by_ref:
            time.sleep(wait_s)
            return haul
        done, waiting = ray.wait(list(by_ref), num_returns=1, timeout=wait_s)
        if waiting and done:
            more, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0)
            done += more
        self._count_silence([by_ref[ref] for ref in waiting])
        for ref in done:
            self._take(by_ref[ref], haul)
        return haul

    def _occupy(self) -> None:
        """Make the workers whose reservation stands. What is left between the two steps is nobody else's: the service
        grants a slot to one job."""
        for hand in self._hands.values():
            if hand.reservation is not None and hand.reservation.stands():
                hand.reservation.leave()
                hand.reservation, hand.actor = None, self._create(hand.id)

    def _create(self, worker: str) -> Any:
        return ACTOR.options(
            name=actor_name(self._brief, worker),
            namespace=self._brief.namespace,
            lifetime="detached",
            max_restarts=0,
            max_task_retries=0,
            **self._options,
        ).remote(self._brief.model_dump_json(), worker)

    def _count_silence(self, unheard: Sequence[Hand]) -> None:
        """A controller that was stopped itself has heard nobody: of a long pause only a little counts."""
        now = time.monotonic()
        passed_s, self._polled_at = min(LONGEST_TURN_S, now - self._polled_at), now
        for hand in unheard:
            hand.silent_s += passed_s

    def where(self, workers: Sequence[str]) -> dict[str, Where | None]:
        """What each does just now; None for who does not answer soon."""
        hands = [self._hands[worker] for worker in workers if worker in self._hands]
        asked = {hand.actor.where.remote(self._brief.attempt_number): hand.id for hand in hands if hand.actor}
        done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_WHERE_S)
        found: dict[str, Where | None] = dict.fromkeys(workers)
        for ref in done:
            with suppress(RayError, NotOwner):
                found[asked[ref]] = ray.get(ref)
        return found

    def draining(self) -> dict[str, float | None]:
        """Workers on nodes that Ray drains -> seconds until the node may be gone, None where Ray was not told."""
        by_node = draining_nodes()
        now_ms = time.time() * 1000
        left_s = {node: (at_ms - now_ms) / 1000 if at_ms else None for node, at_ms in by_node.items()}
        ready = ((hand.id, hand.ready) for hand in self._hands.values() if hand.ready is not None)
        return {worker: left_s[each.node_id] for worker, each in ready if each.node_id in left_s}

    def obstacle(self) -> str:
        """Why a worker does not answer yet, as far as Ray tells."""
        unheard = {actor_name(self._brief, h.id) for h in self._hands.values() if not h.heard}
        if unheard <= begun():
            return "their processes start"
        wanted = {"CPU": self._options["num_cpus"], "GPU": self._options["num_gpus"]}
        wanted["memory"] = self._options.get("memory", 0)
        nodes: list[dict[str, Any]] = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        found = obstacle(wanted, nodes=nodes, free=ray.available_resources())  # type: ignore[no-untyped-call]
        told = launches()
        return f"{found}; {told}" if told else found

    def _take(self, hand: Hand, haul: Haul) -> None:
        try:
            numbered = ray.get(hand.fetching)
        except RayActorError as error:
            log.warning("worker %s: %s", hand.id, error)
            self._hands.pop(hand.id, None)
            if isinstance(error, ActorUnavailableError):
                # It may live, and nobody would speak to it again.
                ray.kill(hand.actor, no_restart=True)
            haul.deaths.append(Death(hand=hand, reason=why_dead(error)))
            return
        except NotOwner:
            haul.disowned, numbered = True, []
        except RayError as error:
            log.error("worker %s did not answer: %s", hand.id, error)
            hand.fetching = None
            return
        hand.fetching, hand.heard, hand.silent_s = None, True, 0.0
        for number, report in numbered:
            hand.after = number
            if isinstance(report, Ready):
                hand.ready = report
            haul.reports.append((hand.id, report))


def worker_options(brief: Brief, *, cluster_has_gpus: bool, environment: dict[str, str]) -> dict[str, Any]:
    """Ray's options of one worker. A spec without resources means one GPU where there are GPUs, else one CPU.

    Variables of the spec are there when its process starts, secrets are not: what Ray is told, it keeps and shows. The
    attempt's token, which is in the environment of the Ray job that this driver is, is not for code of the user's.
    """
    asked = brief.spec.resources
    gpu = asked.gpu if asked.gpu is not None else float(cluster_has_gpus and asked.cpu is None)
    cpu = asked.cpu if asked.cpu is not None else float(gpu == 0)
    options: dict[str, Any] = {
        "num_cpus": cpu,
        "num_gpus": gpu,
        "runtime_env": {
            "env_vars": {
                "OMP_NUM_THREADS": str(max(1, int(cpu))),
                **brief.spec.environment.variables,
                **environment,
                "ELASTANE_ATTEMPT_TOKEN": "",
            }
        },
    }
    if asked.memory_gb is not None:
        options["memory"] = int(asked.memory_gb * 2**30)
    if asked.accelerator is not None:
        options["accelerator_type"] = asked.accelerator
    return options


def obstacle(wanted: Mapping[str, float], *, nodes: Sequence[Mapping[str, float]], free: Mapping[str, float]) -> str:
    """Pure: no node is large enough, none has room, or it is a matter of moments."""
    asked = {name: amount for name, amount in wanted.items() if amount}
    text = ", ".join(_amount(name, amount) for name, amount in asked.items())
    if not any(all(node.get(name, 0) >= amount for name, amount in asked.items()) for node in nodes):
        return f"no node of the cluster has {text}"
    if any(free.get(name, 0) < amount for name, amount in asked.items()):
        return f"the cluster has no free slot with {text}"
    return f"Ray has not placed it yet on a slot with {text}"


def _amount(name: str, amount: float) -> str:
    return f"memory_gb: {amount / 2**30:g}" if name == "memory" else f"{name.lower()}: {amount:g}"


def why_dead(error: RayActorError) -> str:
    """In our words: what Ray says of a death are its own calls that failed. An exception of ours is told as it is."""
    text = str(error)
    if error.actor_init_failed:
        return next((line.strip()[:300] for line in reversed(text.splitlines()) if line.strip()), "it could not start")
    if isinstance(error, ActorUnavailableError):
        return "its process could not be reached any more"
    return next((reason for mark, reason in _DEATHS if mark in text), "its process died")


# What Ray writes -> what it means.
_DEATHS = (
    ("low on memory", "Ray ended its process, for its node ran low on memory"),
    ("node was preempted:", "its node was taken away"),
    ("node was terminated", "its node died"),
    ("node has died", "its node died"),
    ("node has crashed", "its node died"),
)
