"""What Ray's autoscaler is doing about the workers that are missing, in a sentence."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import ray
from ray.autoscaler.v2.sdk import get_cluster_status

log = logging.getLogger(__name__)

ANSWER_S = 2
LONGEST = 200


class Launch(Protocol):
    """Of a kind of node: asked for, or refused, then with why."""

    ray_node_type_name: str
    count: int
    details: str | None


class Starting(Protocol):
    """A node that is there and is not of the cluster yet."""

    ray_node_type_name: str
    details: str | None


class Status(Protocol):
    """The part of Ray's report that is told."""

    pending_launches: list[Any]
    failed_launches: list[Any]
    pending_nodes: list[Any]


def launches() -> str:
    """Empty where no autoscaler reports, or it has nothing under way."""
    try:
        return told(get_cluster_status(ray.get_runtime_context().gcs_address, timeout=ANSWER_S))
    except Exception as error:
        # A sentence is not worth an attempt: what Ray raises here differs with its release.
        log.info("the autoscaler's report could not be read: %s", error)
        return ""


def told(status: Status) -> str:
    """Pure. A launch that failed comes first: it is why nothing else may ever come."""
    return "; ".join([*_failed(status.failed_launches), *_starting(status.pending_launches, status.pending_nodes)])


def _failed(failures: Iterable[Launch]) -> Iterator[str]:
    for failure in list(failures)[-1:]:
        why = " ".join((failure.details or "no reason was given").split())[:LONGEST]
        yield f"the autoscaler could not start {failure.count} of {failure.ray_node_type_name} ({why})"


def _starting(asked: Iterable[Launch], nodes: Iterable[Starting]) -> Iterator[str]:
    counts = Counter({launch.ray_node_type_name: launch.count for launch in asked})
    counts.update(node.ray_node_type_name for node in nodes)
    if counts:
        yield "the autoscaler starts " + ", ".join(f"{count} of {kind}" for kind, count in sorted(counts.items()))
