"""What a page of another site may do to a service on loopback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api.browser_guard import BrowserGuard, is_loopback


def status(
    method: str,
    headers: dict[str, str],
    *,
    loopback: bool = True,
    keys: bool = False,
    public_url: str | None = None,
) -> int:
    """The status that a request gets from the guard before an application that answers 200."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": "/v1/jobs", "headers": raw, "query_string": b""}

    async def locked() -> bool:
        return keys

    guard = BrowserGuard(app, loopback=loopback, locked=locked, public_url=public_url)
    asyncio.run(guard(scope, None, send))  # type: ignore[arg-type]
    assert any(name == b"content-security-policy" for name, _ in sent[0]["headers"])
    found: int = sent[0]["status"]
    return found


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000", "127.0.0.5"])
def test_this_machine_s_own_names_are_answered(host: str) -> None:
    assert status("GET", {"host": host}) == 200


@pytest.mark.parametrize(
    "host", ["evil.example:8000", "127.0.0.1.evil.example", "", "[::1", "10.0.0.1", "@localhost@x"]
)
def test_a_name_that_was_pointed_at_loopback_is_refused(host: str) -> None:
    assert status("GET", {"host": host}) == 403


def test_any_host_is_answered_beyond_loopback_once_keys_are_asked_for() -> None:
    assert status("GET", {"host": "train.example"}, loopback=False, keys=True) == 200


@pytest.mark.parametrize(
    ("host", "answer"),
    [
        ("evil.example:8000", 403),
        ("", 403),
        ("10.0.0.1:8000", 200),
        ("[fd00::1]:8000", 200),
        ("localhost:8000", 200),
        ("Train.example", 200),
    ],
)
def test_while_no_key_is_asked_for_only_a_name_that_nobody_else_can_point_here_is_answered(
    host: str, answer: int
) -> None:
    assert status("GET", {"host": host}, loopback=False, public_url="https://train.example/x") == answer


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:9999", "null", "http://[", ""])
def test_another_site_may_not_act(origin: str) -> None:
    assert status("POST", {"host": "127.0.0.1:8000", "origin": origin}) == 403


def test_a_form_of_another_site_is_known_by_sec_fetch_site() -> None:
    assert status("POST", {"host": "127.0.0.1:8000", "sec-fetch-site": "cross-site"}) == 403


def test_the_own_page_may_act() -> None:
    headers = {"host": "127.0.0.1:8000", "origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-origin"}
    assert status("POST", headers) == 200


def test_a_client_that_is_no_browser_may_act() -> None:
    assert status("DELETE", {"host": "127.0.0.1:8000"}) == 200


@pytest.mark.parametrize(("host", "own"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)])
def test_which_addresses_are_this_machine_only(host: str, own: bool) -> None:
    assert is_loopback(host) is own
