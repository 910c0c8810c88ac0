"""What a spec would need: the closed formulas for every stage, without a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from service.domain.admission import admit
from service.domain.errors import Unavailable
from service.domain.parsing import parse_spec
from service.domain.plan import Plan
from service.domain.planning import plan_spec, shape_of
from service.domain.spec import JobSpec
from service.ports import Capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    capacity: Capacity

    async def plan(self, document: object) -> Plan:
        """Raises SpecRefused, also for a model whose size is not known here."""
        capacity = await self.worker_memory_bytes()
        spec = admit(parse_spec(document), file_exists=None, capacity_bytes=capacity).spec
        return plan_spec(spec, capacity_bytes=capacity)

    async def of(self, spec: JobSpec) -> Plan | None:
        """None where the size of the model is not known here."""
        if shape_of(spec) is None:
            return None
        return plan_spec(spec, capacity_bytes=await self.worker_memory_bytes())

    async def may_have_gpus(self) -> bool:
        """False where the cluster is known and has none."""
        try:
            facts = await self.capacity.facts()
        except Unavailable:
            return True
        return facts.slot_kind == "gpu"

    async def worker_memory_bytes(self) -> int | None:
        """Of the smallest slot there is; None where no cluster says."""
        try:
            facts = await self.capacity.facts()
        except Unavailable:
            return None
        known = [node.memory_bytes // node.slots for node in facts.nodes if node.memory_bytes and node.slots]
        return min(known, default=None)
