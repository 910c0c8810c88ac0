"""What a spec would need: the closed formulas for every stage, without a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from service.domain.admission import admit, config_of
from service.domain.cluster import ClusterFacts
from service.domain.dsconfig import Import
from service.domain.errors import Unavailable
from service.domain.hf_shape import shape_in
from service.domain.parsing import parse_config, parse_spec
from service.domain.plan import Plan
from service.domain.planning import plan_spec, shape_of
from service.domain.presets import Shape
from service.domain.spec import JobSpec
from service.ports import Capacity, Files


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    capacity: Capacity
    # None where workers run on other machines.
    files: Files | None

    def import_ds(self, document: object) -> Import:
        """The spec without its `ds_config`, and what became of each key. Raises SpecRefused."""
        return parse_config(document)

    async def plan(self, document: object) -> Plan:
        """Raises SpecRefused, also for a model whose size is not known here."""
        spec = parse_spec(document)
        capacity = await self.worker_memory_bytes(spec)
        # A plan says what does not fit; nothing is refused for it.
        unbounded = spec.resources.model_copy(update={"memory_gb": None})
        shape, asked = await self.shape(spec), spec.model_copy(update={"resources": unbounded})
        legal = admit(asked, file_exists=None, capacity_bytes=capacity, shape=shape).spec
        return plan_spec(legal, capacity_bytes=capacity, shape=shape)

    async def of(self, spec: JobSpec) -> Plan | None:
        """None where the size of the model is not known here."""
        if (shape := await self.shape(spec)) is None:
            return None
        return plan_spec(spec, capacity_bytes=await self.worker_memory_bytes(spec), shape=shape)

    async def shape(self, spec: JobSpec) -> Shape | None:
        """What the spec tells or, for a model in a folder of the workers' machine, its config."""
        if (known := shape_of(spec)) is not None or self.files is None:
            return known
        documents = [document for path in config_of(spec) if (document := await self.files.document(path)) is not None]
        return shape_in(documents[0]) if documents else None

    async def facts(self) -> ClusterFacts | None:
        """None where no cluster says."""
        try:
            return await self.capacity.facts()
        except Unavailable:
            return None

    async def worker_memory_bytes(self, spec: JobSpec) -> int | None:
        """Of the smallest slot there is, where slots are CPUs, and no more than the spec asks for; None where no
        cluster says, or where a GPU has a memory of its own."""
        facts = await self.facts()
        if facts is None or facts.slot_kind == "gpu":
            return None
        known = [node.memory_bytes // node.slots for node in facts.nodes if node.memory_bytes and node.slots]
        asked = spec.resources.memory_gb
        return min([*known, *([] if asked is None else [int(asked * 2**30)])], default=None)
