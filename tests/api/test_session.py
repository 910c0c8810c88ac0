"""A browser signs in once: its cookie is seen by no script, sent by no other site, and good as long as its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.api.live import TINY, LiveService

Start = Callable[..., LiveService]


class Browser:
    """Keeps cookies, and says where what it sends comes from."""

    def __init__(self, live: LiveService, key: str) -> None:
        self.key = key
        self.http = httpx.Client(base_url=live.url)
        self.own = {"origin": live.url, "sec-fetch-site": "same-origin"}

    def sign_in(self) -> httpx.Response:
        return self.http.post("/v1/session", json={"key": self.key}, headers=self.own)


@pytest.fixture
def browser(start: Start) -> Iterator[Browser]:
    live = start()
    key = live.http.post("/v1/keys", json={"name": "ada", "scopes": ["admin"]}).json()["key"]
    opened = Browser(live, key)
    yield opened
    opened.http.close()


def test_a_session_does_what_its_key_may_until_it_is_signed_out(browser: Browser) -> None:
    assert browser.http.get("/v1/jobs").status_code == 401
    assert browser.http.get("/v1/session").json() == {
        "key_asked": True,
        "name": None,
        "scopes": [],
        "quota_slots": None,
    }
    assert browser.sign_in().json() == {"key_asked": True, "name": "ada", "scopes": ["admin"], "quota_slots": None}
    assert browser.http.post("/v1/jobs", json=TINY, headers=browser.own).status_code == 201
    with browser.http.stream("GET", "/v1/stream") as stream:
        assert stream.status_code == 200
    assert browser.http.get("/v1/session").json()["name"] == "ada"
    assert browser.http.delete("/v1/session", headers=browser.own).status_code == 204
    assert browser.http.get("/v1/jobs").status_code == 401


def test_no_script_reads_the_cookie_and_no_other_site_sends_it(browser: Browser) -> None:
    words = {word.strip().lower() for word in browser.sign_in().headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict"} <= words
    assert not any(word.startswith(("path", "domain", "max-age")) for word in words)


@pytest.mark.parametrize(
    "sent_from", [{}, {"origin": "http://127.0.0.1:1"}, {"origin": "null"}, {"sec-fetch-site": "same-site"}]
)
def test_a_session_acts_for_the_pages_of_this_origin_alone(browser: Browser, sent_from: dict[str, str]) -> None:
    browser.sign_in()
    assert browser.http.post("/v1/jobs", json=TINY, headers=sent_from).status_code == 403
    assert browser.http.get("/v1/jobs").json()["items"] == []


def test_a_wrong_key_signs_nobody_in_and_a_revoked_one_ends_its_session(browser: Browser) -> None:
    wrong = browser.http.post("/v1/session", json={"key": "ek_wrong"}, headers=browser.own)
    assert wrong.status_code == 401
    assert "set-cookie" not in wrong.headers
    browser.sign_in()
    mine = browser.http.get("/v1/keys").json()["items"][0]["id"]
    assert browser.http.delete(f"/v1/keys/{mine}", headers=browser.own).status_code == 204
    assert browser.http.get("/v1/jobs").status_code == 401
    assert browser.http.get("/v1/session").json()["name"] is None


def test_where_no_key_is_asked_for_the_session_says_so(start: Start) -> None:
    assert start().http.get("/v1/session").json() == {
        "key_asked": False,
        "name": None,
        "scopes": [],
        "quota_slots": None,
    }
