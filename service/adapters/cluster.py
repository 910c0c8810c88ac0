"""What a cluster offers, read from its state API over HTTP."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import httpx

from service.adapters.ray_jobs import auth_headers, dashboard_url
from service.domain.cluster import ClusterFacts, Node
from service.domain.errors import ClusterUnavailable

TIMEOUT_S = 10.0


class RayCapacity:
    """The port `Capacity`."""

    def __init__(self, address: str) -> None:
        self._address = address

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
            return facts_of(response.json()["data"]["result"]["result"], address=self._address)
        except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
            # Another service's word: null or of another shape is as good as none.
            raise ClusterUnavailable(repr(error)) from error


def facts_of(rows: list[dict[str, Any]], *, address: str) -> ClusterFacts:
    """GPUs are the slots of a cluster that has any; a head without them then offers none."""
    has_gpus = any((row.get("resources_total") or {}).get("GPU", 0) for row in rows)
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
        memory_bytes=int(total["memory"]) if "memory" in total and resource == "CPU" else None,
        accelerator=kinds[0] if kinds else None,
    )
