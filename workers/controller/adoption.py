"""Workers that an earlier controller of this job left behind: those that live are taken over, in whatever they do."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util import list_named_actors

from service.domain.arrangement import Arrangement
from service.domain.wire import Brief
from workers.controller.generation import Generation
from workers.controller.names import job_prefix
from workers.worker.messages import Adopted, Joined, NotOwner

log = logging.getLogger(__name__)

# An actor whose control thread does not answer in this time is ended.
ANSWER_S = 10.0
STORE = "store-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`workers`: actor and answer of each; `stores`: actors where generations met, the newest last."""

    workers: tuple[tuple[Any, Adopted], ...] = ()
    stores: tuple[Any, ...] = ()


def find(brief: Brief) -> Found:
    """Everything alive of this job. What does not answer is ended. Raises NotOwner where a newer attempt was first."""
    names = sorted(name for name in list_named_actors(all_namespaces=False) if name.startswith(job_prefix(brief)))
    actors = [(name, actor) for name in names if (actor := _actor(name, brief)) is not None]
    stores = tuple(actor for name, actor in actors if name.rsplit(":", 1)[1].startswith(STORE))
    asked = [(name, actor, actor.adopt.remote(brief.attempt_number)) for name, actor in actors if actor not in stores]
    workers = [(actor, _answer(name, actor, answer)) for name, actor, answer in asked]
    return Found(workers=tuple((actor, adopted) for actor, adopted in workers if adopted is not None), stores=stores)


def present_generation(adopted: Sequence[Adopted], arrangement: Arrangement) -> Generation | None:
    """The newest generation that the workers know. It stands where all its members are there and make steps."""
    newest = max((each.generation for each in adopted), default=0)
    if newest == 0:
        return None
    known = {each.worker_id: each for each in adopted if each.generation == newest}
    members = next(iter(known.values())).members
    others = tuple(each.worker_id for each in adopted if each.generation > 0 and each.worker_id not in members)
    held = next(iter(known.values())).arrangement or arrangement
    generation = Generation(number=newest, members=members, leavers=others, cause="start", arrangement=held, told=True)
    if not others and all(member in known and known[member].training for member in members):
        generation.joined = {member: _joined(known[member]) for member in members}
    return generation


def _joined(adopted: Adopted) -> Joined:
    return Joined(
        generation=adopted.generation, step=adopted.step, source="survivors", form_s=0.0, move_s=0.0, moved_bytes=0
    )


def _actor(name: str, brief: Brief) -> Any:
    try:
        return ray.get_actor(name, namespace=brief.namespace)
    except ValueError:
        log.info("actor %s went by itself", name)
        return None


def _answer(name: str, actor: Any, answer: Any) -> Adopted | None:
    try:
        adopted: Adopted = ray.get(answer, timeout=ANSWER_S)
    except NotOwner:
        raise
    except RayError as error:
        log.warning("ended %s, which an earlier attempt left behind: %s", name, error)
        ray.kill(actor, no_restart=True)
        return None
    return adopted
