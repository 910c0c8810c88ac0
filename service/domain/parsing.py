"""A document from outside -> JobSpec, or every problem it has, in the contract's form.

Two passes: first what no field may hold (NUL bytes, NaN, numbers beyond 64 bits, bottomless nesting), then the fields.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from service.domain.choice import MICRO, OFFLOAD
from service.domain.dsconfig import import_config
from service.domain.dsreading import AUTO, Import
from service.domain.errors import Problem, RequestRefused, SpecRefused
from service.domain.fsdpconfig import ROOT as FSDP
from service.domain.fsdpconfig import import_fsdp
from service.domain.spec import JobSpec, WorkerBounds

MAX_DEPTH = 16
MAX_VALUES = 20_000
# Where true and false belong; elsewhere pydantic would take true for 1.
_BOOLEANS = {
    ("compile",),
    ("deterministic",),
    ("mirrors",),
    ("training", "activation_checkpointing"),
    ("training", "optimizer", "nesterov"),
    ("from", "optimizer"),
    ("from", "allow_missing"),
}
_FREE_FORM = {"args", "ds_config", "fsdp_config"}
# Names that pydantic adds to the path of an error for the variant of a union it tried.
_VARIANTS = {"model": {"preset", "gpt", "hf", "python"}, "data": {"stdlib", "text", "tokens", "python"}}
_TYPE_WORD = re.compile(r"^(\[key\]$|literal\[|constrained-|function-|float$|int$|str$|bool$|[A-Z]\w*(Spec|Bounds)$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """`report`: what became of each key of a `ds_config` or `fsdp_config`, which is in the spec's own fields now.
    `wishes`: the fields that were said to be auto and have a default until admission chooses."""

    spec: JobSpec
    report: Mapping[str, str]
    wishes: frozenset[str]


def parse(document: object) -> Parsed:
    """Raises SpecRefused with all problems."""
    deepspeed = import_config(_sayable(document))
    fsdp = import_fsdp(deepspeed.document)
    if problems := (*deepspeed.problems, *fsdp.problems):
        raise SpecRefused(problems)
    document, wishes = _without_wishes(fsdp.document)
    try:
        spec = JobSpec.model_validate(document)
    except ValidationError as error:
        raise SpecRefused(problems_of(error, JobSpec)) from None
    return Parsed(spec=spec, report={**deepspeed.report, **fsdp.report}, wishes=wishes)


def _without_wishes(document: dict[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    """`offload: auto` and `training.micro_batch_size: auto`, which a spec that is decided has not."""
    wishes, rest = set[str](), dict(document)
    offload, training = rest.get("offload"), rest.get("training")
    if offload == AUTO:
        del rest["offload"]
    if isinstance(offload, dict) and offload.get("optimizer") == AUTO:
        rest["offload"] = {name: value for name, value in offload.items() if name != "optimizer"}
    if rest.get("offload") != offload:
        wishes.add(OFFLOAD)
    if isinstance(training, dict) and training.get("micro_batch_size") == AUTO:
        rest["training"] = {name: value for name, value in training.items() if name != "micro_batch_size"}
        wishes.add(MICRO)
    return rest, frozenset(wishes)


def parse_spec(document: object) -> JobSpec:
    """As `parse`, without the report."""
    return parse(document).spec


def parse_config(document: object) -> Import:
    """What `parse` makes of the `ds_config`, or else the `fsdp_config`, of which keys may be refused; the rest need be
    no whole spec. Raises SpecRefused for what no field may hold, and for fields that say otherwise than the
    configuration."""
    sayable = _sayable(document)
    found = (import_fsdp if sayable.get(FSDP) is not None else import_config)(sayable)
    if conflicts := [problem for problem in found.problems if not problem.field.startswith(f"{found.root}.")]:
        raise SpecRefused(conflicts)
    return found


def _sayable(document: object) -> dict[str, Any]:
    if not isinstance(document, dict):
        fix = 'send an object; the shortest spec is {"model": "gpt-tiny"}'
        raise SpecRefused([Problem(field="spec", value=shown(document), problem="not an object", fix=fix)])
    unsayable = tuple(_unsayable(document))
    if unsayable:
        raise SpecRefused(unsayable)
    return document


def parse_bounds(workers: object, *, present: WorkerBounds) -> WorkerBounds:
    """What `scale` was given. One number N: at most N, and the minimum no higher than N. Raises RequestRefused."""
    if isinstance(workers, WorkerBounds):
        return workers
    if workers == {}:
        raise RequestRefused([Problem(field="workers", value={}, problem="empty", fix=_FORMS["workers"])])
    try:
        bounds = WorkerBounds.model_validate(workers)
    except ValidationError as error:
        raise RequestRefused(problems_of(error, WorkerBounds, prefix=("workers",))) from None
    return WorkerBounds(min=min(present.min, bounds.max), max=bounds.max) if isinstance(workers, int) else bounds


# ---- what no field may hold ----------------------------------------------------------------------------------------


def _unsayable(document: Mapping[str, Any]) -> Iterator[Problem]:
    seen = 0
    waiting: list[tuple[tuple[str, ...], object]] = [((), document)]
    while waiting:
        path, value = waiting.pop()
        seen += 1
        if seen > MAX_VALUES or len(path) > MAX_DEPTH:
            fix = f"use at most {MAX_VALUES} values, nested at most {MAX_DEPTH} deep"
            yield Problem(field=_dotted(path[:4]), value="...", problem="too large a document", fix=fix)
            return
        if isinstance(value, dict):
            waiting += [((*path, str(key)), inner) for key, inner in value.items()]
            yield from _bad_text(path, [key for key in value if isinstance(key, str)])
        elif isinstance(value, list | tuple):
            waiting += [((*path, str(index)), inner) for index, inner in enumerate(value)]
        else:
            yield from _bad_scalar(path, value)


def _bad_scalar(path: tuple[str, ...], value: object) -> Iterator[Problem]:
    if isinstance(value, str):
        yield from _bad_text(path, [value])
    elif isinstance(value, bool):
        if path not in _BOOLEANS and not _FREE_FORM & set(path):
            fix = "write the number or word that belongs here"
            yield Problem(field=_dotted(path), value=value, problem="neither true nor false makes sense here", fix=fix)
    elif isinstance(value, float) and not math.isfinite(value):
        yield Problem(field=_dotted(path), value=str(value), problem="not a finite number", fix="use a finite number")
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        fix = "use a number of at most 64 bits"
        yield Problem(field=_dotted(path), value=shown(value), problem="too large a number", fix=fix)


def _bad_text(path: tuple[str, ...], texts: list[str]) -> Iterator[Problem]:
    for text in texts:
        if "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text):
            fix = "remove the NUL bytes and lone surrogates"
            yield Problem(field=_dotted(path), value=_shown_at(path, text), problem="not legal text", fix=fix)


# ---- what the fields say -------------------------------------------------------------------------------------------


def problems_of(error: ValidationError, model: type[BaseModel], *, prefix: tuple[str, ...] = ()) -> list[Problem]:
    """One problem per field: where several variants of a union refused, the last, which is the long form, speaks."""
    by_field: dict[str, Problem] = {}
    for found in error.errors(include_url=False):
        path = (*prefix, *_path(found))
        by_field[_dotted(path)] = Problem(
            field=_dotted(path),
            value=_shown_at(path, found["input"]) if found["type"] != "missing" else None,
            problem=_problem(found),
            fix=_fix(found, known_names(model, _path(found)[: None if found["type"] in _NOT_AN_OBJECT else -1])),
        )
    return list(by_field.values())


def _path(found: ErrorDetails) -> tuple[str, ...]:
    """The location as the user wrote it: without the names of the variants that were tried."""
    parts = [str(part) for part in found["loc"]]
    last = len(parts) - 1
    unknown = found["type"] == "extra_forbidden"
    return tuple(
        part
        for index, part in enumerate(parts)
        if (unknown and index == last)
        or not (
            (index == 1 and part in _VARIANTS.get(parts[0], ()) and not (unknown and last == 1))
            or _TYPE_WORD.match(part)
        )
    )


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(part[:80] for part in path).replace("\x00", "\\0") or "spec"


def _problem(found: ErrorDetails) -> str:
    if found["type"] == "extra_forbidden":
        other = _form_of(found)
        return f"it does not go with the form {{{other}: ...}}" if other else "unknown field"
    if found["type"] == "missing":
        return "missing"
    if found["type"] in _NOT_AN_OBJECT:
        return "not of a form that is known here"
    message = found["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return message.split("; ")[0]


def _form_of(found: ErrorDetails) -> str | None:
    """The form that was taken, where the field that is too much belongs to another form of the same thing."""
    *path, field = (str(part) for part in found["loc"])
    forms = _VARIANTS.get(path[0], set()) if path else set()
    if len(path) != 2 or path[1] not in forms or field not in known_names(JobSpec, (path[0],)):
        return None
    return "name" if path[1] == "gpt" else path[1]


def _fix(found: ErrorDetails, known: tuple[str, ...]) -> str:
    if found["type"] == "extra_forbidden" and _form_of(found):
        return f"keep one of the two; {_FORMS[str(found['loc'][0])]}"
    if found["type"] == "extra_forbidden":
        return nearest(str(found["loc"][-1]), known)
    form = _FORMS.get(_dotted(_path(found)))
    if form is not None and found["type"] != "value_error":
        return form
    if found["type"] in _NOT_AN_OBJECT:
        return f"write an object with {', '.join(known)}"
    if found["type"] == "value_error":
        parts = found["msg"].split("; ", 1)
        return parts[1] if len(parts) == 2 else "correct it"
    limits = {key: value for key, value in found.get("ctx", {}).items() if key in _LIMIT_WORDS}
    if limits:
        return "use " + " and ".join(f"{_LIMIT_WORDS[key]} {value}" for key, value in limits.items())
    return _FIXES.get(found["type"], found["msg"][:1].lower() + found["msg"][1:]).format(**_facts(found))


_NOT_AN_OBJECT = {"model_type", "model_attributes_type", "dict_type"}
# How to write the fields that have more than one form, or a form that a pattern says badly.
_FORMS = {
    "name": "use 1 to 63 of a-z 0-9 -, no - first or last",
    "model": (
        'write the name of a preset such as "gpt-tiny", {name: gpt, layers: 6, width: 384, ...}, {hf: DIR_OR_ID} '
        'or {python: "package.module:function"}'
    ),
    "model.python": 'write "package.module:function"',
    "data": 'write "stdlib", {text: "GLOB"}, {tokens: FILE} or {python: "package.module:function"}',
    "data.python": 'write "package.module:function"',
    "offload": "write none, cpu, nvme, auto or {optimizer: ..., params: ...}",
    "offload.ratio": "use 0 to 1, or auto",
    "units": "write auto, {layers: [ClassName]} or {min_params: 1000000}",
    "precision": "write fp32, bf16, fp16 or {params: bf16, reduce: fp32, buffers: bf16}",
    "precision.loss_scale": "write dynamic, a number, or {initial: 65536, growth_interval: 2000, hysteresis: 1}",
    "training.activation_checkpointing": "write true, false or reentrant",
    "training.optimizer": "write {name: adamw, lr: 3.0e-4, ...}",
    "workers": "write one number or {min: 1, max: 4}",
    "from": "write JOB@STEP, JOB or {uri: FOLDER, optimizer: false}",
    "from.job": "write the id of a job",
    "environment": "write {working_dir: DIR, pip: [PACKAGE], variables: {NAME: value}, secrets: {NAME: REFERENCE}}",
    "environment.pip": "write a list, [einops==0.8.1]",
    "environment.variables": "write {NAME: value}",
    "environment.secrets": "write {NAME: the name under which the operator keeps it}",
}
_LIMIT_WORDS = {
    "ge": "at least",
    "gt": "more than",
    "le": "at most",
    "lt": "less than",
    "max_length": "a length of at most",
    "min_length": "a length of at least",
}
_FIXES = {
    "missing": "add it",
    "literal_error": "use {expected}",
    "union_tag_invalid": "use one of the forms in the documentation of the spec",
    "string_pattern_mismatch": "write it as {pattern}",
    "finite_number": "use a finite number",
    "int_from_float": "use a whole number",
    "string_type": "write text; a number or a word such as true goes into quotes",
    "int_parsing": "use a whole number",
    "int_parsing_size": "use a smaller number",
}


def _facts(found: ErrorDetails) -> dict[str, str]:
    context = found.get("ctx", {})
    return {"expected": str(context.get("expected", "")), "pattern": str(context.get("pattern", ""))}


def nearest(name: str, known: tuple[str, ...]) -> str:
    """What to write instead of a name that is not known: the closest one, and all there are."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    listed = f"there are {', '.join(known)}" if known else "remove it"
    return f"did you mean {close[0]}? {listed}" if close else listed


def known_names(model: type[BaseModel], path: tuple[str, ...]) -> tuple[str, ...]:
    """The fields that there are at a place of a document."""
    models = [model]
    for part in path:
        if part.isdigit():
            continue  # an item of a list has the names that its list has
        fields = [fields[part] for fields in map(_fields, models) if part in fields]
        models = [found for field in fields for found in _models_in(field.annotation)]
    return tuple(dict.fromkeys(name for one in models for name in _fields(one)))


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """By the names that users write."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in _models_in(part)]


def _shown_at(path: tuple[str, ...], value: object) -> Any:
    """What somebody writes into an environment, in the wrong place or form, may be a secret."""
    return "..." if path[:1] == ("environment",) else shown(value)


def shown(value: object) -> Any:
    """The value as an error may show it: short, and legal JSON."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else f"{str(value)[:40]}..." if abs(value) > 10**40 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    text = text.replace("\x00", "\\0").encode("utf-8", "replace").decode()
    return text if len(text) <= 100 else f"{text[:100]}... ({len(text)} characters)"
