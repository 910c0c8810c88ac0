"""The OpenAPI document: what every path answers, refusals included, and the bodies that are read by hand."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.auth import COOKIE
from api.checkpoint_schemas import ExportRequest
from api.plan_schemas import ImportRequest
from api.problems import CODES, MEDIA_TYPE, Problem
from api.schemas import WORKERS_SCHEMA, KeyRequest, PriorityRequest, QuotaRequest, ScaleRequest, SignIn
from api.webhook_schemas import WebhookRequest
from service.domain.presets import PRESETS
from service.domain.spec import FSDP_STAGES, JobSpec
from service.domain.wire import Heartbeat

Json = dict[str, Any]

REF = "#/components/schemas/{model}"
EXAMPLES: dict[str, Json] = {
    "JobSpecDocument": {
        "shortest": {"model": "gpt-tiny"},
        "elastic": {"model": "gpt-small", "stage": 3, "workers": {"min": 1, "max": 4}, "training": {"steps": 200}},
    },
    "ImportRequest": {"stage 2": {"ds_config": {"zero_optimization": {"stage": 2}}, "spec": {"model": "gpt2"}}},
    "PriorityRequest": {"first": {"priority": 100}},
    "ScaleRequest": {"number": {"workers": 3}, "bounds": {"workers": {"min": 1, "max": 4}}},
}
RETRY_AFTER = {"description": "seconds", "schema": {"type": "integer", "minimum": 1}}
PROBLEM = {MEDIA_TYPE: {"schema": {"$ref": REF.format(model="Problem")}}}


def refuses(*statuses: int) -> dict[int | str, Json]:
    """The refusals that a path's own words can bring; `complete` adds those that every path has."""
    found: dict[int | str, Json] = {}
    for status in statuses:
        found[status] = {"description": CODES[status][1], "content": PROBLEM}
        if status in (429, 503):
            found[status]["headers"] = {"Retry-After": RETRY_AFTER}
    return found


def takes(model: str, *, yaml: bool = False) -> Json:
    """The body of a path that reads it by hand."""
    schema: Json = {"schema": {"$ref": REF.format(model=model)}}
    if model in EXAMPLES:
        schema["examples"] = {name: {"value": value} for name, value in EXAMPLES[model].items()}
    media = {"application/json": schema} | ({"application/yaml": schema} if yaml else {})
    return {"openapi_extra": {"requestBody": {"required": True, "content": media}}}


def complete(app: FastAPI) -> Json:
    """The document, built once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
        )
        _add_shapes(document)
        for path, methods in document["paths"].items():
            for operation in methods.values():
                _add_refusals(operation, locked=path.startswith(("/v1/", "/internal/")))
        app.openapi_schema = document
    return app.openapi_schema


def _add_shapes(document: Json) -> None:
    components = document.setdefault("components", {})
    shapes = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        shapes.pop(unused, None)
    bodies = (
        ScaleRequest,
        PriorityRequest,
        ImportRequest,
        ExportRequest,
        KeyRequest,
        QuotaRequest,
        WebhookRequest,
        SignIn,
        Heartbeat,
    )
    for model in (Problem, *bodies):
        _add(shapes, model.__name__, model.model_json_schema(ref_template=REF))
    _add(shapes, "JobSpecDocument", spec_schema())
    components["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key, ek_..."},
        "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "A browser that signed in"},
    }


def _add(shapes: Json, name: str, schema: Json) -> None:
    for inner, definition in schema.pop("$defs", {}).items():
        shapes.setdefault(inner, definition)
    shapes[name] = schema


def _add_refusals(operation: Json, *, locked: bool) -> None:
    responses = operation["responses"]
    for status, answer in list(responses.items()):
        # FastAPI's own 422 describes another shape than ours.
        if "HTTPValidationError" in str(answer):
            responses[status] = refuses(422)[422]
    common = (401, 403, 429, 503) if locked else (403,)
    for status, answer in refuses(*common).items():
        responses.setdefault(str(status), answer)
    if locked:
        # No key is asked for on loopback while none exists: the empty alternative.
        operation["security"] = [{"key": []}, {"session": []}, {}]


def spec_schema() -> Json:
    """The schema of a spec as users may write it: the long form, and the short forms that become it."""
    schema = JobSpec.model_json_schema(ref_template=REF)
    fields = schema["properties"]
    short: dict[str, list[Json]] = {
        "offload": [{"type": "string", "enum": ["none", "cpu", "nvme", "auto"]}],
        "precision": [{"type": "string", "enum": ["fp32", "bf16", "fp16"]}],
        "workers": WORKERS_SCHEMA["anyOf"],
        "stage": [{"type": "string", "enum": sorted(FSDP_STAGES)}],
        "from": [{"type": "string", "description": "JOB@STEP, or JOB for its newest checkpoint"}],
    }
    for name, forms in short.items():
        words = {key: fields[name].pop(key) for key in ("default", "title", "description") if key in fields[name]}
        fields[name] = {"anyOf": [fields[name], *forms], **words}
    fields["model"]["oneOf"][0] = {"type": "string", "enum": list(PRESETS)}
    return schema
