"""What a body may be before anybody asks what it means."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fastapi import Request

from api.bodies import document, document_or_yaml
from api.problems import ProblemError


def request(body: bytes, content_type: str | None = "application/json") -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [] if content_type is None else [(b"content-type", content_type.encode())]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers, "query_string": b""}, receive)


def read(body: bytes, content_type: str | None = "application/json") -> dict[str, Any]:
    return asyncio.run(document_or_yaml(request(body, content_type)))


def refusal(body: bytes, content_type: str | None = "application/json") -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        read(body, content_type)
    return caught.value


def test_an_object_is_read_whole() -> None:
    assert read(b'{"model": "gpt-tiny", "training": {"steps": 3}}') == {"model": "gpt-tiny", "training": {"steps": 3}}


@pytest.mark.parametrize("body", [b"{", b"", b"nope", b'{"a": }', b'{"a": 1} {"b": 2}', b"\xff\xfe{}"])
def test_what_is_not_json_cannot_be_read(body: bytes) -> None:
    assert refusal(body).status == 400


@pytest.mark.parametrize(("body", "kind"), [(b"[]", "list"), (b"1", "number"), (b'"x"', "text"), (b"null", "null")])
def test_what_is_not_an_object_is_named(body: bytes, kind: str) -> None:
    problem = refusal(body)
    assert problem.status == 422
    assert kind in problem.detail
    assert [(part.field, part.value, part.fix) for part in problem.errors] == [
        ("body", json.loads(body), "send an object of fields")
    ]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_json_does_not_know_is_refused(number: str) -> None:
    assert refusal(f'{{"lr": {number}}}'.encode()).status == 400


def test_an_integer_of_five_thousand_digits_is_refused_not_parsed_for_minutes() -> None:
    assert refusal(b'{"steps": ' + b"9" * 5000 + b"}").status == 400


@pytest.mark.parametrize("opening", [b'{"a": ' * 100 + b"1" + b"}" * 100, b'{"a":' + b"[" * 20000])
def test_a_deep_nest_is_refused(opening: bytes) -> None:
    assert refusal(opening).status == 400


@pytest.mark.parametrize("text", ["a\\u0000b", "\\ud800"])
def test_text_that_no_database_can_hold_names_its_field(text: str) -> None:
    problem = refusal(f'{{"training": {{"note": "{text}"}}}}'.encode())
    assert (problem.status, problem.errors[0].field) == (422, "training.note")


@pytest.mark.parametrize("sent", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_of_a_browser_is_no_json(sent: str | None) -> None:
    assert refusal(b'{"model": "gpt-tiny"}', sent).status == 415


def test_a_charset_after_the_type_is_no_obstacle() -> None:
    assert read(b"{}", "application/json; charset=utf-8") == {}


def test_yaml_and_json_say_the_same() -> None:
    text = b"model: gpt-tiny\nworkers: {min: 1, max: 4}\n"
    assert read(text, "application/yaml") == {"model": "gpt-tiny", "workers": {"min": 1, "max": 4}}


def test_yaml_is_taken_only_where_it_is_meant() -> None:
    with pytest.raises(ProblemError) as caught:
        asyncio.run(document(request(b"workers: 2", "application/yaml")))
    assert caught.value.status == 415


def test_a_date_in_yaml_stays_the_text_that_was_written() -> None:
    assert read(b"name: 2026-01-01", "application/yaml") == {"name": "2026-01-01"}


@pytest.mark.parametrize(
    "text",
    [
        b"a: &x [1, 2]\nb: [*x, *x]",
        b"!!python/object/apply:os.system ['true']",
        b"a: .nan",
        b"1: 2",
        b"a: [",
        b"a: !!binary aGk=",
        b"a: !!set {x, y}",
        b"a: 0x" + b"f" * 6000,
    ],
)
def test_yaml_beyond_json_is_refused(text: bytes) -> None:
    assert refusal(text, "application/yaml").status in (400, 422)


def test_the_refusal_of_any_value_can_be_written_as_json() -> None:
    problem = refusal(b'{"a": "\\ud800"}')
    assert json.loads(json.dumps(problem.errors[0].model_dump()))["field"] == "a"


@pytest.mark.parametrize(
    ("content_type", "text"),
    [
        ("application/json", '{"model": "gpt-tiny", "stage": 1, "stage": 2}'),
        ("application/json", '{"model": "gpt-tiny", "training": {"steps": 1, "stage": 0, "steps": 2}}'),
        ("application/yaml", "model: gpt-tiny\nstage: 1\nstage: 2\n"),
        ("application/yaml", "model: gpt-tiny\ntraining: {steps: 1, steps: 2}\n"),
    ],
)
def test_a_field_that_is_given_twice_is_refused_by_name(content_type: str, text: str) -> None:
    problem = refusal(text.encode(), content_type)
    assert problem.status == 400
    assert "given 2 times in one object" in problem.detail
