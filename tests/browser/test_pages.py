"""What every page has: no serious fault for axe, both themes, a phone's width, keys, words where there is nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from api.client import ElastaneClient
from tests.browser.axe import serious_faults
from tests.browser.chromium import Tab
from tests.browser.conftest import OpenTab
from tests.browser.jobs import spec, wait_for

PLACES = [
    "/jobs",
    *(f"/jobs/{{job}}?tab={tab}" for tab in ("", "timeline", "workers", "checkpoints", "logs", "spec")),
    "/submit",
    "/submit?as=json",
    "/plan",
    "/cluster",
    "/compare?jobs={job}",
    "/nowhere",
]


# Where Tab stops: of radio buttons of one name, the browser stops at one.
TABBABLE = """
[...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')].filter((one) =>
  !one.disabled && one.tabIndex >= 0 && one.checkVisibility({visibilityProperty: true}) && one.type !== 'radio')
"""
CONTROLS = f"{TABBABLE}.length + 5"


def press_tab(page: Page) -> dict[str, Any] | None:
    """What Tab came to, and whether it can be seen that it did; None at the end of the page."""
    page.keyboard.press("Tab")
    found: dict[str, Any] | None = page.evaluate("""() => {
      const [one, look] = [document.activeElement, getComputedStyle(document.activeElement)];
      if (one === document.body) return null;
      one.seen = true;
      const outlined = look.outlineStyle !== 'none' || look.boxShadow !== 'none';
      return {outlined, html: `not outlined: ${one.outerHTML.slice(0, 200)}`};
    }""")
    return found


@pytest.fixture(scope="module")
def ended(client: ElastaneClient) -> str:
    job_id: str = client.submit(spec("for-the-pages", steps=20, workers=2, most=2))["id"]
    wait_for(lambda: client.job(job_id)["state"] == "succeeded", what="the end of the job")
    return job_id


@pytest.mark.parametrize("place", PLACES)
def test_axe_finds_no_serious_fault_in_light_and_dark(open_tab: OpenTab, ended: str, place: str) -> None:
    page = open_tab(reduced_motion="reduce").open(place.format(job=ended))
    expect(page.locator("main h1, main h2").first).to_be_visible()
    page.wait_for_timeout(400)
    assert serious_faults(page) == []


def test_a_phone_needs_no_sideways_scrolling_on_any_page(open_tab: OpenTab, ended: str) -> None:
    narrow = open_tab(viewport={"width": 360, "height": 740})
    widths = {}
    for place in PLACES:
        page = narrow.open(place.format(job=ended))
        expect(page.locator("main h1, main h2").first).to_be_visible()
        page.wait_for_timeout(300)
        widths[place] = page.evaluate("document.documentElement.scrollWidth")
    assert {place: width for place, width in widths.items() if width > 360} == {}


def test_keys_go_where_they_say(tab: Tab, ended: str) -> None:
    page = tab.open("/cluster")
    expect(page.get_by_role("heading", name="Cluster")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("for-the-pages")
    expect(page.locator("[role=row][data-job]")).to_have_count(1)
    assert "q=for-the-pages" in page.url
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("search")


def test_the_tab_key_reaches_every_control_and_the_one_reached_is_outlined(tab: Tab, ended: str) -> None:
    found = {}
    for place in PLACES:
        page = tab.open(place.format(job=ended))
        expect(page.locator("main h1, main h2").first).to_be_visible()
        page.wait_for_timeout(400)
        walked = [reached for _ in range(page.evaluate(CONTROLS)) if (reached := press_tab(page)) is not None]
        missed = page.evaluate(f"{TABBABLE}.filter((one) => !one.seen).map((one) => one.outerHTML.slice(0, 200))")
        found[place] = [*missed, *(one["html"] for one in walked if not one["outlined"])]
    assert {place: faults for place, faults in found.items() if faults} == {}


def test_the_arrow_keys_read_all_charts_at_one_step(tab: Tab, ended: str) -> None:
    page = tab.open(f"/jobs/{ended}")
    expect(page.locator('figure[data-chart="Loss"]')).to_have_attribute("data-last", "20")
    readings = [page.locator(f'figure[data-chart="{name}"] .readings') for name in ("Throughput", "Workers")]

    def read_at(keys: str, step: int) -> None:
        page.keyboard.press(keys)
        for each in readings:
            expect(each).to_contain_text(f"step {step}")

    read_at("ArrowRight", 1)
    read_at("Shift+ArrowRight", 11)
    read_at("ArrowLeft", 10)
    page.keyboard.press("Escape")
    expect(readings[1]).to_contain_text("at work")


def test_a_filter_in_the_address_is_there_after_a_reload(tab: Tab, ended: str) -> None:
    page = tab.open("/jobs?q=for-the-pages&state=ended")
    expect(page.locator("[role=row][data-job]")).to_have_count(1)
    page.reload()
    expect(page.get_by_role("searchbox")).to_have_value("for-the-pages")
    page.get_by_role("button", name="active").click()
    expect(page.get_by_role("heading", name="No job matches")).to_be_visible()


def test_the_chosen_theme_outlasts_a_reload(open_tab: OpenTab, ended: str) -> None:
    page = open_tab(color_scheme="light").open("/jobs")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Change to dark").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != light
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_a_job_that_does_not_exist_is_said_to_be_none(tab: Tab, ended: str) -> None:
    page = tab.open("/jobs/00000000-0000-7000-8000-000000000000")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    assert all("404" in error for error in tab.errors)
    tab.errors.clear()


def test_an_ended_job_shows_its_whole_curve_and_its_workers_at_the_end(tab: Tab, ended: str) -> None:
    page = tab.open(f"/jobs/{ended}")
    figure = page.locator('figure[data-chart="Loss"]')
    expect(figure).to_have_attribute("data-points", "20")
    expect(page.locator("[data-stat=workers]")).to_have_text("2")
    expect(page.locator("[data-rank]")).to_have_count(2)
    expect(page.locator("time").first).to_have_attribute("title", re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$"))


def test_a_checkpoint_is_verified_and_started_from(tab: Tab, ended: str) -> None:
    page = tab.open(f"/jobs/{ended}?tab=checkpoints")
    row = page.locator("[data-checkpoint='20']")
    row.get_by_role("button", name="Verify").click()
    expect(row).to_contain_text("every byte is right", timeout=60_000)
    row.get_by_role("link", name="Start from").click()
    expect(page.get_by_text("the service accepts this")).to_be_visible()
    page.get_by_role("button", name="JSON").click()
    expect(page.get_by_role("textbox")).to_have_value(re.compile(f'"from": "{ended}@20"'))
