"""What a cluster offers, read from its state API over HTTP."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import httpx

from service.adapters.ray_jobs import auth_headers, dashboard_url
from service.domain.cluster import ClusterFacts, Node, SlotKind
from service.domain.errors import ClusterUnavailable
from service.domain.hardware import memory_named

TIMEOUT_S = 10.0


class RayCapacity:
    """The port `Capacity`."""

    def __init__(self, address: str, *, max_slots: int | None = None, slot_kind: SlotKind | None = None) -> None:
        """max_slots, slot_kind: what its autoscaler may reach, which nodes that are not there cannot tell."""
        self._address = address
        self._max_slots = max_slots
        self._slot_kind = slot_kind

    @cached_property
    def _client(self) -> httpx.AsyncClient:
        url = dashboard_url(self._address)
        return httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, headers=auth_headers(), trust_env=False)

    async def close(self) -> None:
        client = self.__dict__.pop("_client", None)
        if client is not None:
            await client.aclose()

    async def facts(self) -> ClusterFacts:
        try:
            response = await self._client.get("/api/v0/nodes", params={"detail": "true", "limit": 10_000})
            response.raise_for_status()
            facts = facts_of(
                response.json()["data"]["result"]["result"], address=self._address, slot_kind=self._slot_kind
            )
            return replace(facts, max_slots=max(facts.slots, self._max_slots or 0))
        except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
            # Another service's word: null or of another shape is as good as none.
            raise ClusterUnavailable(repr(error)) from error


def facts_of(rows: list[dict[str, Any]], *, address: str, slot_kind: SlotKind | None = None) -> ClusterFacts:
    """GPUs are the slots of a cluster that has any, or is to have; a head without them then offers none."""
    has_gpus = slot_kind == "gpu" or (
        slot_kind is None and any((row.get("resources_total") or {}).get("GPU", 0) for row in rows)
    )
    resource = "GPU" if has_gpus else "CPU"
    nodes = tuple(_node(row, resource) for row in rows)
    slots = sum(node.slots for node in nodes if node.alive)
    return ClusterFacts(nodes=nodes, slot_kind="gpu" if has_gpus else "cpu", max_slots=slots, address=address)


def _node(row: dict[str, Any], resource: str) -> Node:
    total = row.get("resources_total") or {}
    kinds = [name.removeprefix("accelerator_type:") for name in total if name.startswith("accelerator_type:")]
    return Node(
        id=str(row.get("node_id", "")),
        address=str(row.get("node_ip", "")),
        alive=row.get("state") == "ALIVE",
        slots=int(total.get(resource, 0)),
        memory_bytes=int(total["memory"]) if "memory" in total else None,
        accelerator=kinds[0] if kinds else None,
        accelerator_memory_bytes=memory_named(kinds[0]) if kinds else None,
    )
