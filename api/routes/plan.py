"""`/v1/plan`: what a spec would need. `/v1/import-ds`: what a configuration of DeepSpeed, or of FSDP, is as a spec."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from api import plan_schemas as schemas
from api.auth import may_submit, requires
from api.bodies import body_of, document_or_yaml
from api.dependencies import AppServices, NoQuery
from api.openapi import refuses, takes
from service.domain.key import Scope

router = APIRouter(tags=["plan"])


@router.post(
    "/v1/plan",
    responses=refuses(400, 413, 415, 422),
    dependencies=[Depends(requires(Scope.READ)), NoQuery],
    **takes("JobSpecDocument", yaml=True),
)
async def make_plan(
    services: AppServices,
    document: Annotated[dict[str, Any], Depends(document_or_yaml)],
    may_run_code: Annotated[bool, Depends(may_submit)],
) -> schemas.Plan:
    """Bytes per rank and elements moved for every choice, what fits, what is recommended and why. A function that the
    spec names is run to describe its model: for keys that may submit."""
    return schemas.Plan.model_validate(await services.plans.plan(document, may_run_code=may_run_code))


@router.post(
    "/v1/import-ds",
    responses=refuses(400, 413, 415, 422),
    dependencies=[Depends(requires(Scope.READ)), NoQuery],
    **takes("ImportRequest"),
)
async def import_ds(
    services: AppServices, body: Annotated[schemas.ImportRequest, Depends(body_of(schemas.ImportRequest))]
) -> schemas.ImportedSpec:
    """The keys of a configuration of DeepSpeed, or of FSDP, as fields of a spec, and what became of each. Submits
    nothing; a refused key is in the report."""
    found = services.plans.import_config({**body.spec, "ds_config": body.ds_config, "fsdp_config": body.fsdp_config})
    report = [schemas.KeyFate.model_validate(verdict) for verdict in found.verdicts]
    return schemas.ImportedSpec(spec=found.document, report=report)
