"""A service with keys: the page asks for one, shows nothing before, and forgets it on leaving."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from api.client import ElastaneClient
from examples.local_service import LocalService, local_service
from tests.browser.chromium import Tab


@pytest.fixture
def locked(chromium: Browser) -> Iterator[LocalService]:
    with local_service(name="locked", slots=1) as local:
        yield local


def test_a_service_with_keys_shows_its_jobs_only_to_who_has_one(chromium: Browser, locked: LocalService) -> None:
    with ElastaneClient(locked.url) as client:
        key = client.create_key(name="browser", scopes=["admin"])["key"]
    context = chromium.new_context()
    tab = Tab(context.new_page(), locked.url)
    page = tab.open()
    expect(page.get_by_role("heading", name="Not permitted")).to_be_visible()
    page.get_by_label("API key").fill("ek_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("does not accept this key")).to_be_visible()
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="No job yet")).to_be_visible()
    expect(page.locator("[data-feed=live]")).to_be_visible()
    assert key not in page.url
    page.reload()
    expect(page.get_by_role("heading", name="No job yet")).to_be_visible()
    assert key not in str(page.evaluate("[document.cookie, {...localStorage}, {...sessionStorage}]"))
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Not permitted")).to_be_visible()
    assert tab.strangers == []
    assert all("401" in error for error in tab.errors)
    context.close()
