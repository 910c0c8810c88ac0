"""`/docs`: the OpenAPI document as one page of plain HTML. No script and nothing from another origin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

Json = dict[str, Any]

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .6rem; border: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
details { border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); padding: .4rem 0; }
summary { cursor: pointer; } summary code { font-weight: 600; }
.method { display: inline-block; min-width: 4.5rem; } .muted { opacity: .75; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem .8rem .15rem 0; vertical-align: top; }
"""


def docs_page(openapi: Json) -> str:
    """The whole page. `/docs.css` holds its style, as the content security policy wants."""
    info = openapi["info"]
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<title>{escape(info["title"])} API</title><link rel="stylesheet" href="docs.css">',
        f"<h1>{escape(info['title'])} API {escape(info['version'])}</h1>",
        f"<p>{escape(info.get('description', ''))}</p>",
        '<p>For machines: <a href="openapi.json">openapi.json</a></p><h2>Paths</h2>',
        *_operations(openapi),
        "<h2>Shapes</h2>",
        *_shapes(openapi),
        "</html>",
    ]
    return "\n".join(parts)


def _operations(openapi: Json) -> Iterator[str]:
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            yield (
                f'<details><summary><code><span class="method">{escape(method.upper())}</span> {escape(path)}</code> '
                f'<span class="muted">{escape(operation.get("summary", ""))}</span></summary>'
            )
            yield f"<p>{escape(operation.get('description', ''))}</p>"
            yield from _parameters(operation.get("parameters", []))
            if "requestBody" in operation:
                yield f"<p>Body: {_content(operation['requestBody'])}</p>"
            yield from _answers(operation["responses"])
            yield "</details>"


def _parameters(parameters: list[Json]) -> Iterator[str]:
    if not parameters:
        return
    yield "<table><tr><th>parameter<th>in<th>type<th></tr>"
    for one in parameters:
        kind = _kind(one.get("schema", {}))
        yield (
            f"<tr><td><code>{escape(one['name'])}</code><td>{escape(one['in'])}<td>{kind}"
            f"<td>{escape(one.get('description', ''))}</tr>"
        )
    yield "</table>"


def _answers(responses: Json) -> Iterator[str]:
    yield "<table>"
    for status, answer in responses.items():
        yield f"<tr><td>{escape(str(status))}<td>{escape(answer.get('description', ''))}<td>{_content(answer)}</tr>"
    yield "</table>"


def _content(holder: Json) -> str:
    return ", ".join(
        f"<code>{escape(media)}</code> {_kind(content.get('schema', {}))}"
        for media, content in holder.get("content", {}).items()
    )


def _kind(schema: Json) -> str:
    """A reference as a link to its shape; otherwise the type's name."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f'<a href="#{escape(name)}">{escape(name)}</a>'
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return " or ".join(_kind(option) for option in options)
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return escape(str(schema.get("type", "any")))


def _shapes(openapi: Json) -> Iterator[str]:
    for name, schema in sorted(openapi.get("components", {}).get("schemas", {}).items()):
        text = escape(json.dumps(schema, indent=2, ensure_ascii=False))
        yield f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary><pre>{text}</pre></details>'
