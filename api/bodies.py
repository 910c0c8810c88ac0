"""Bodies out of bytes: strict content type, strict JSON, YAML without its surprises."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import yaml
from fastapi import Request
from pydantic import BaseModel, ValidationError

from api.problems import FieldProblem, ProblemError, field_problems
from service.domain.wire import Heartbeat

Json = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)

JSON_TYPES = ("application/json",)
YAML_TYPES = ("application/yaml", "application/x-yaml")
DEEPEST = 64
LARGEST = 2**63 - 1


async def document(request: Request) -> Json:
    """The object that a JSON body holds."""
    return _object(_read_json(await _body(request, JSON_TYPES)))


async def document_or_yaml(request: Request) -> Json:
    """The object that a JSON or YAML body holds."""
    body = await _body(request, JSON_TYPES + YAML_TYPES)
    return _object(_read_yaml(body) if _media_type(request) in YAML_TYPES else _read_json(body))


def body_of(model: type[Model]) -> Callable[[Request], Awaitable[Model]]:
    """A dependency: the JSON body as this model, or a 422 that names every wrong field."""

    async def parsed(request: Request) -> Model:
        return validated(model, await document(request))

    return parsed


def validated(model: type[Model], content: Json) -> Model:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        errors = field_problems(error.errors(include_url=False))
        detail = "; ".join(f"{part.field}: {part.problem}" for part in errors[:5])
        raise ProblemError(422, "invalid-request", "The request is not valid", detail, errors=errors) from error


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _body(request: Request, types: tuple[str, ...]) -> bytes:
    sent = _media_type(request)
    if sent not in types:
        detail = f"content-type {sent or '(none)'}: send {' or '.join(types)}"
        raise ProblemError(415, "unsupported-media-type", "This content type is not read here", detail)
    return await request.body()


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _unreadable(f"the body is not UTF-8 (byte {error.start})") from error


def _read_json(body: bytes) -> object:
    text = _text(body)
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        raise _unreadable(f"the body is not JSON: {error.msg} at line {error.lineno} column {error.colno}") from error
    except RecursionError as error:
        raise _unreadable(f"the body is nested deeper than {DEEPEST}") from error
    except ValueError as error:
        raise _unreadable(f"the body is not JSON: {error}") from error


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Of a name that is given twice nobody can say which one was meant."""
    names = Counter(name for name, _ in pairs)
    for name, count in names.items():
        if count > 1:
            raise _unreadable(f"the field {name[:100]!r} is given {count} times in one object; give it once")
    return dict(pairs)


def _refuse_constant(name: str) -> float:
    raise _unreadable(f"{name} is not JSON; give a finite number or null")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _unreadable(f"the number {text[:40]} is too large for a double")
    return value


class _PlainLoader(yaml.SafeLoader):
    """YAML with JSON's types only: no dates, no aliases (a short text may otherwise expand to gigabytes)."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise _unreadable("YAML aliases (*name) are not read here; write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        if len(mapping) < len(node.value):
            _each_once([(str(key.value), None) for key, _ in node.value])
        return mapping


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _read_yaml(body: bytes) -> object:
    text = _text(body)
    try:
        # _PlainLoader is a SafeLoader: no tag constructs an object.
        return yaml.load(text, Loader=_PlainLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise _unreadable(f"the body is not YAML: {str(error)[:300]}") from error
    except RecursionError as error:
        raise _unreadable(f"the body is nested deeper than {DEEPEST}") from error


def _unreadable(detail: str) -> ProblemError:
    return ProblemError(400, "bad-request", "The body cannot be read", detail)


def _object(content: object) -> Json:
    if not isinstance(content, dict):
        kind = (
            "null"
            if content is None
            else {list: "a list", str: "a text", bool: "a boolean"}.get(type(content), "a number")
        )
        raise _wrong("", content, f"the body is {kind}", "send an object of fields")
    _check(content, path="", depth=0)
    return content


def _check(value: object, *, path: str, depth: int) -> None:
    """Only what every database and every JSON reader can hold: string keys, UTF-8 without NUL, finite numbers."""
    if depth > DEEPEST:
        raise _unreadable(f"the body is nested deeper than {DEEPEST}")
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise _wrong(path, key, "a key that is not a text", "quote the key")
            _check_text(key, path=path)
            _check(inner, path=f"{path}.{key}" if path else key, depth=depth + 1)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            _check(inner, path=f"{path}.{position}", depth=depth + 1)
    else:
        _check_scalar(value, path=path)


def _check_scalar(value: object, *, path: str) -> None:
    if isinstance(value, str):
        _check_text(value, path=path)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _wrong(path, value, "not a finite number", "give a finite number")
    elif isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        raise _wrong(path, value, "an integer of more than 64 bits", f"stay within {LARGEST}")
    elif value is not None and not isinstance(value, bool | int | float):
        raise _wrong(path, value, f"{type(value).__name__} is not a type of JSON", "use text, numbers, lists, objects")


def _check_text(text: str, *, path: str) -> None:
    if "\0" in text:
        raise _wrong(path, text, "it contains a NUL character", "remove the NUL character")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise _wrong(path, text, "it contains half of a surrogate pair", "send whole characters")


def _wrong(path: str, value: object, problem: str, fix: str) -> ProblemError:
    part = FieldProblem(field=path or "body", value=value, problem=problem, fix=fix)
    return ProblemError(422, "invalid-request", "The request is not valid", f"{part.field}: {problem}", errors=[part])


async def heartbeat_body(request: Request) -> Heartbeat:
    """A heartbeat. Unlike every other body it may say NaN and Infinity: a loss can be either."""
    body = await _body(request, JSON_TYPES)
    try:
        return Heartbeat.model_validate_json(body)
    except ValidationError as error:
        problem = field_problems(error.errors(include_url=False, include_input=False))
        detail = "; ".join(f"{part.field}: {part.problem}" for part in problem[:5])
        raise ProblemError(422, "invalid-heartbeat", "The heartbeat is not valid", detail, errors=problem) from error
