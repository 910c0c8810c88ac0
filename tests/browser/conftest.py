from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser

from api.client import ElastaneClient
from examples.local_service import ROOT, LocalService, local_service
from tests.browser.chromium import NOT_FOUND, Tab, browser, find_chromium

DIST = ROOT / "api" / "dashboard" / "dist" / "index.html"


@pytest.fixture(scope="session")
def executable() -> str:
    found = find_chromium()
    if found is None:
        pytest.skip(NOT_FOUND)
    assert DIST.is_file(), "the dashboard is not built: make dashboard"
    return found


@pytest.fixture(scope="module")
def chromium(executable: str) -> Iterator[Browser]:
    """Of one file: while it lives its library's event loop runs, and no other test of the process can run its own."""
    with browser(executable) as running:
        yield running


@pytest.fixture(scope="package")
def service(executable: str) -> Iterator[LocalService]:
    """Where there is no browser no service starts either."""
    with local_service(name="browser", slots=4) as local:
        yield local


@pytest.fixture(scope="package")
def client(service: LocalService) -> Iterator[ElastaneClient]:
    with ElastaneClient(service.url) as connected:
        yield connected


OpenTab = Callable[..., Tab]


@contextmanager
def opening(chromium: Browser, url: str) -> Iterator[OpenTab]:
    """Fresh tabs. At the end: nothing was asked outside the origin, nothing went wrong on the console."""
    tabs: list[Tab] = []

    def opened(**options: Any) -> Tab:
        context = chromium.new_context(**{"viewport": {"width": 1400, "height": 1000}, **options})
        tabs.append(Tab(context.new_page(), url))
        return tabs[-1]

    yield opened
    for tab in tabs:
        tab.page.context.close()
    assert [tab.strangers for tab in tabs if tab.strangers] == []
    assert [tab.errors for tab in tabs if tab.errors] == []


@pytest.fixture
def open_tab(chromium: Browser, service: LocalService) -> Iterator[OpenTab]:
    with opening(chromium, service.url) as opened:
        yield opened


@pytest.fixture
def tab(open_tab: OpenTab) -> Tab:
    return open_tab()
