"""What a spec would need: the closed formulas for every stage, without a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from service.domain.admission import admit
from service.domain.parsing import parse_spec
from service.domain.plan import Plan
from service.domain.planning import plan_spec
from service.domain.spec import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    async def plan(self, document: object) -> Plan:
        """Raises SpecRefused, also for a model whose size is not known here."""
        return plan_spec(admit(parse_spec(document), file_exists=None).spec)

    async def of(self, spec: JobSpec) -> Plan | None:
        """None where the size of the model is not known here."""
        return plan_spec(spec) if has_shape(spec) else None
