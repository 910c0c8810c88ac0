"""A service with keys: the page asks for one, shows nothing before, permits what it does, forgets it on leaving."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.api.live import LiveService, settings
from tests.browser.axe import serious_faults
from tests.browser.conftest import OpenTab, opening


@pytest.fixture
def live(executable: str, tmp_path: Path) -> Iterator[LiveService]:
    """Its controllers are played: nothing here trains."""
    started = LiveService(settings(tmp_path))
    yield started
    started.stop()


@pytest.fixture
def open_locked(chromium: Browser, live: LiveService) -> Iterator[OpenTab]:
    with opening(chromium, live.url) as opened:
        yield opened


def key_of(live: LiveService, *, scope: str, by: str | None = None) -> str:
    headers = {"authorization": f"Bearer {by}"} if by else {}
    answer = live.http.post("/v1/keys", json={"name": f"to-{scope}", "scopes": [scope]}, headers=headers)
    return str(answer.raise_for_status().json()["key"])


def sign_in(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()


def test_a_service_with_keys_shows_its_jobs_only_to_who_has_one(open_locked: OpenTab, live: LiveService) -> None:
    key = key_of(live, scope="admin")
    tab = open_locked()
    page = tab.open()
    expect(page.get_by_role("heading", name="Not permitted")).to_be_visible()
    assert serious_faults(page) == []
    sign_in(page, "ek_wrong")
    expect(page.get_by_text("does not accept this key")).to_be_visible()
    sign_in(page, key)
    expect(page.get_by_role("heading", name="No job yet")).to_be_visible()
    expect(page.locator("[data-feed=live]")).to_be_visible()
    assert serious_faults(page) == []
    assert key not in page.url
    page.reload()
    expect(page.get_by_role("heading", name="No job yet")).to_be_visible()
    assert key not in str(page.evaluate("[document.cookie, {...localStorage}, {...sessionStorage}]"))
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Not permitted")).to_be_visible()
    assert all("401" in error for error in tab.errors)
    tab.errors.clear()


def test_who_may_only_read_sees_all_and_is_told_why_not_more(open_locked: OpenTab, live: LiveService) -> None:
    job_id, _ = live.running(name="watched")
    key = key_of(live, scope="read", by=key_of(live, scope="admin"))
    tab = open_locked()
    page = tab.open(f"/jobs/{job_id}")
    sign_in(page, key)
    why = "the key to-read has the scope read, this asks for submit"
    expect(page.get_by_role("group", name="Actions")).to_have_text(f"Not permitted: {why}.")
    expect(page.get_by_role("link", name="New job")).to_have_count(0)
    page.get_by_role("link", name="Checkpoints").click()
    expect(page.get_by_role("region", name="Checkpoints")).to_contain_text(why)
    tab.open("/jobs").get_by_label("Choose watched").check()
    bulk = page.get_by_role("region", name="Chosen jobs")
    expect(bulk).to_contain_text(why)
    expect(bulk.get_by_role("button", name="Cancel")).to_have_count(0)
    tab.open("/plan")
    expect(page.get_by_role("heading", name="Recommended")).to_be_visible()
    expect(page.get_by_role("button", name="Submit job")).to_have_count(0)
    assert serious_faults(page) == []
    # Refused before the key was shown; with it, nothing is even asked that it does not permit.
    assert all("401" in error for error in tab.errors)
    tab.errors.clear()
