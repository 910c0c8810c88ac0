"""Whatever is wrong with a request, the answer is a problem document; a browser finds no way round."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from tests.api.live import TINY, LiveService, wait_until

JOB = "/v1/jobs/0198c0de-0000-7000-8000-000000000000"
BAD: list[tuple[str, str, int, dict[str, Any]]] = [
    ("GET", "/nope", 404, {}),
    ("GET", "/v1/jobs/", 404, {}),
    ("GET", "/v1/jobs/no%00such", 422, {}),
    ("GET", f"/v1/jobs/{'x' * 500}", 422, {}),
    ("GET", "/v1/jobs/..%2f..%2fetc", 404, {}),
    ("GET", "/assets/../../../pyproject.toml", 404, {}),
    ("GET", "/assets/%2e%2e/%2e%2e/main.py", 404, {}),
    ("PUT", "/v1/jobs", 405, {}),
    ("DELETE", "/v1/jobs", 405, {}),
    ("PATCH", JOB, 405, {}),
    ("POST", "/healthz", 405, {}),
    ("POST", "/assets/x.js", 405, {}),
    ("GET", f"{JOB}?verbose=1", 422, {}),
    ("GET", "/healthz?x=1", 422, {}),
    ("GET", "/v1/jobs?limit=1&page=2", 422, {}),
    ("GET", f"{JOB}/events?after=-1", 422, {}),
    ("GET", f"{JOB}/events?after=99999999999999999999", 422, {}),
    ("GET", f"{JOB}/metrics?points=0", 422, {}),
    ("GET", f"{JOB}/metrics?names=a%20b", 422, {}),
    ("GET", f"{JOB}/logs?rank=-1", 422, {}),
    ("GET", f"{JOB}/logs?follow=perhaps", 422, {}),
    ("GET", JOB, 404, {}),
    ("DELETE", JOB, 404, {}),
    ("POST", f"{JOB}/pause", 404, {}),
    ("POST", f"{JOB}/pause", 422, {"json": {"now": True}}),
    ("POST", f"{JOB}/scale", 404, {"json": {"workers": 2}}),
    ("POST", f"{JOB}/scale", 400, {"content": b"{", "headers": {"content-type": "application/json"}}),
    ("POST", "/v1/jobs", 415, {"data": {"model": "gpt-tiny"}}),
    ("POST", "/v1/jobs", 415, {"content": b'{"model": "gpt-tiny"}'}),
    ("POST", "/v1/jobs", 400, {"content": b'{"model": NaN}', "headers": {"content-type": "application/json"}}),
    ("POST", "/v1/plan", 422, {"json": {"model": "gpt-tiny", "stage": 7}}),
    ("POST", "/v1/plan", 422, {"json": []}),
    ("POST", "/v1/keys", 422, {"json": {"name": "x", "scopes": ["root"]}}),
    ("POST", "/v1/keys", 422, {"json": {"name": "", "scopes": ["read"]}}),
    ("DELETE", "/v1/keys/nope", 404, {}),
    ("GET", "/internal/v1/attempts/nope", 401, {}),
]


@pytest.mark.parametrize(("method", "path", "status", "sent"), BAD, ids=lambda value: str(value)[:40])
def test_each_refusal_is_a_problem(service: LiveService, method: str, path: str, status: int, sent: Any) -> None:
    answer = service.http.request(method, path, **sent)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert {"type", "title", "status", "detail", "instance"} <= answer.json().keys()
    assert answer.json()["status"] == status


def test_a_method_that_is_not_taken_is_told_which_are(service: LiveService) -> None:
    assert service.http.put("/healthz").headers["allow"] == "GET"
    assert set(service.http.put(JOB).headers["allow"].split(", ")) == {"GET", "DELETE"}


def test_bytes_that_are_no_http_are_answered_with_a_problem(service: LiveService) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as raw:
        raw.sendall(b"NONSENSE\r\n\r\n")
        head, _, body = b"".join(iter(lambda: raw.recv(65536), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in head
    assert json.loads(body)["type"] == "urn:elastane:problem:bad-request"


def test_who_leaves_in_the_middle_of_a_body_is_no_fault_of_the_service(service: LiveService) -> None:
    def counted(status: str) -> list[str]:
        lines = service.http.get("/metrics").text.splitlines()
        return [line for line in lines if "http_requests_total" in line and f'status="{status}"' in line]

    refused, broken = counted("400"), counted("500")
    head = b"POST /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as raw:
        raw.sendall(head + b'{"model"')
    wait_until(lambda: counted("400") != refused)
    assert counted("500") == broken


def test_a_metric_that_nobody_knows_is_refused_with_the_nearest_name(service: LiveService) -> None:
    path = f"/v1/jobs/{service.submit()['id']}/metrics"
    answer = service.http.get(path, params={"names": "loss,grad_nrom"})
    assert answer.status_code == 422
    (wrong,) = answer.json()["errors"]
    assert (wrong["field"], wrong["value"]) == ("names", "grad_nrom")
    assert wrong["fix"].startswith("did you mean grad_norm? there are loss, ")
    assert service.http.get(path, params={"names": "mfu"}).json() == {"series": []}


def test_a_body_beyond_the_limit_is_refused_by_its_length(service: LiveService) -> None:
    answer = service.http.post("/v1/jobs", content=b" " * (2 << 20), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")


def test_a_body_beyond_the_limit_is_refused_while_it_comes(service: LiveService) -> None:
    def chunks() -> Any:
        for _ in range(40):
            yield b" " * (1 << 16)

    answer = service.http.post("/v1/jobs", content=chunks(), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")


def test_a_body_at_the_limit_is_read(service: LiveService) -> None:
    body = json.dumps(TINY).encode()
    padded = body + b" " * ((1 << 20) - len(body))
    assert (
        service.http.post("/v1/jobs", content=padded, headers={"content-type": "application/json"}).status_code == 201
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_a_page_of_another_site_submits_nothing(service: LiveService, headers: dict[str, str]) -> None:
    answer = service.http.post("/v1/jobs", json=TINY, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json")


def test_the_own_page_submits(service: LiveService) -> None:
    assert service.http.post("/v1/jobs", json=TINY, headers={"origin": service.url}).status_code == 201


@pytest.mark.parametrize("path", ["/", "/docs", "/v1/jobs", "/nope", "/openapi.json"])
def test_every_answer_keeps_scripts_of_others_out(service: LiveService, path: str) -> None:
    headers = service.http.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'self'")
    assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /v1/jobs?%ff=%ff HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"GET /v1/jobs/\xff HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: x\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\nidempotency-key: \xff\r\ncontent-type: application/json\r\n"
        b'content-length: 20\r\n\r\n{"model":"gpt-tiny"}',
        b"GET /v1/stream HTTP/1.1\r\nhost: 127.0.0.1\r\nlast-event-id: \xff\r\n\r\n",
        b"GET /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer \xff\r\n\r\n",
    ],
)
def test_bytes_that_no_client_library_sends_do_no_harm(service: LiveService, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as connection:
        connection.sendall(raw)
        status = int(connection.recv(100).split()[1])
    assert status < 500
    assert service.http.get("/healthz").status_code == 200
