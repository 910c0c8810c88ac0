"""A real job in a real browser: written in the form, watched, resized, cancelled."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from api.client import ElastaneClient
from tests.browser.chromium import Tab
from tests.browser.jobs import chart, spec, wait_for, wait_for_point, wait_for_step


@pytest.fixture(scope="module")
def running(client: ElastaneClient) -> str:
    """A job on two workers that outlasts the module."""
    job_id: str = client.submit(spec("browser", steps=100_000))["id"]
    client.scale(job_id, 2)
    wait_for_step(client, job_id, 3)
    return job_id


def loss(page: Page) -> str:
    return page.locator("[data-stat=loss]").inner_text()


def test_a_job_submitted_from_the_form_is_in_the_list_and_its_loss_moves(tab: Tab, client: ElastaneClient) -> None:
    page = tab.open("/submit?spec=" + quote(json.dumps(spec("from-the-form", steps=300, workers=1, most=1))))
    expect(page.get_by_text("the service accepts this")).to_be_visible()
    page.get_by_role("button", name="Submit job").click()
    expect(page.get_by_role("heading", name="from-the-form")).to_be_visible()
    first = wait_for_point(page, "Loss", 1)
    assert int(wait_for_point(page, "Loss", 300)["points"]) > int(first["points"])
    expect(page.locator("h1 .badge")).to_have_text("succeeded")
    page.get_by_role("link", name="Jobs", exact=True).first.click()
    row = page.locator("[role=row]", has_text="from-the-form")
    expect(row).to_contain_text("succeeded")
    expect(row).to_contain_text("300 / 300")
    expect(row.locator("svg.spark")).to_be_visible()


def test_a_link_to_another_spec_is_followed_where_a_form_stands(tab: Tab) -> None:
    page = tab.open("/submit?spec=" + quote(json.dumps(spec("first", steps=300))))
    expect(page.get_by_label("Steps", exact=True)).to_have_value("300")
    page.evaluate("to => { location.hash = to }", "#/submit?spec=" + quote(json.dumps(spec("second", steps=400))))
    expect(page.get_by_label("Steps", exact=True)).to_have_value("400")
    expect(page.get_by_text("the service accepts this")).to_be_visible()
    assert "second" in page.url


def test_the_form_says_what_is_wrong_beside_the_field(tab: Tab) -> None:
    page = tab.open("/submit")
    page.get_by_label("Workers, at least").fill("9")
    expect(page.locator(".problems")).to_contain_text("workers")
    expect(page.get_by_role("button", name="Submit job")).to_be_disabled()
    page.get_by_label("Workers, at least").fill("1")
    expect(page.get_by_role("button", name="Submit job")).to_be_enabled()
    # The refusals that the browser's console reports are the ones that were provoked.
    assert all("422" in error for error in tab.errors)
    tab.errors.clear()


def test_scaling_from_two_to_three_shows_the_marker_and_the_memory_of_three_ranks(tab: Tab, running: str) -> None:
    page = tab.open(f"/jobs/{running}")
    wait_for_point(page, "Loss", 5)
    expect(page.locator("[data-rank]")).to_have_count(2)
    before = page.locator("[data-rank='0'] .num b").inner_text()
    page.get_by_role("button", name="Scale").click()
    page.get_by_role("slider").fill("3")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 + 2 + 2")
    expect(dialog).to_contain_text(re.compile(r"Memory per rank, predicted\s*[\d.]+ .iB → [\d.]+ .iB"))
    page.get_by_role("button", name="Scale to 3").click()
    expect(page.locator("[data-stat=workers]")).to_have_text("3", timeout=60_000)
    expect(page.locator("[data-kind=resized]").first).to_contain_text("2 → 3 workers")
    assert re.search(r"resized@\d+", chart(page, "Loss")["markers"])
    assert "resized@" in chart(page, "Step time")["markers"]
    expect(page.locator("[data-rank]")).to_have_count(3)
    expect(page.locator("[data-rank='0'] .num b")).not_to_have_text(before)


def test_the_chart_has_every_step_once_while_it_streams(tab: Tab, client: ElastaneClient, running: str) -> None:
    page = tab.open(f"/jobs/{running}")
    start = int(wait_for_point(page, "Loss", 1)["last"])
    shown = wait_for_point(page, "Loss", start + 20)
    assert shown["covered"] == shown["last"], "a step is missing or stands twice"


def test_the_address_keeps_the_zoom(tab: Tab, running: str) -> None:
    page = tab.open(f"/jobs/{running}?steps=2-6&smooth=0")
    expect(page.get_by_text("steps 2 to 6")).to_be_visible()
    page.get_by_role("button", name="Whole run").click()
    expect(page.get_by_text("drag to zoom")).to_be_visible()
    assert "steps" not in page.url
    assert "smooth=0" in page.url


def test_cancelling_asks_first(tab: Tab, client: ElastaneClient, running: str) -> None:
    page = tab.open(f"/jobs/{running}")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_contain_text("Steps that no checkpoint holds")
    page.get_by_role("button", name="Keep as it is").click()
    assert client.job(running)["state"] not in ("cancelling", "cancelled")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("h1 .badge")).to_have_text("cancelled", timeout=60_000)
    wait_for(lambda: client.job(running)["state"] == "cancelled", what="the end of the cancelled job")
    expect(page.get_by_role("button", name="Scale")).to_have_count(0)
