"""The service is killed under the page: the page says so, then goes on without a gap."""

from __future__ import annotations

from playwright.sync_api import expect

from api.client import ElastaneClient
from examples.local_service import LocalService
from tests.browser.chromium import Tab
from tests.browser.jobs import chart, spec, wait_for, wait_for_point, wait_for_step


def test_a_killed_service_is_said_to_be_stale_and_caught_up_with_without_a_gap(
    tab: Tab, service: LocalService, client: ElastaneClient
) -> None:
    job_id = client.submit(spec("outlives-the-service", steps=100_000, workers=2, most=2))["id"]
    wait_for_step(client, job_id, 3)
    page = tab.open(f"/jobs/{job_id}")
    wait_for_point(page, "Loss", 5)
    expect(page.locator("[data-feed=live]")).to_be_visible()

    service.kill()
    expect(page.locator("[data-feed=stale]")).to_contain_text("last update")
    seen = int(chart(page, "Loss")["last"])

    service.start()
    # The page asks again after at most 8 s, and has loaded then what it missed.
    expect(page.locator("[data-feed=live]")).to_be_visible(timeout=15_000)
    shown = wait_for_point(page, "Loss", seen + 20)
    assert shown["covered"] == shown["last"], "a step is missing or stands twice"

    client.cancel(job_id)
    wait_for(lambda: client.job(job_id)["state"] == "cancelled", what="the end of the job")
    # While nobody listened the browser reported what it could not reach.
    assert all("ERR_" in error for error in tab.errors)
    tab.errors.clear()


def test_a_form_that_was_opened_while_the_service_was_away_goes_on_by_itself(tab: Tab, service: LocalService) -> None:
    page = tab.open("/")
    service.kill()
    page.evaluate("location.hash = '#/submit'")
    expect(page.locator(".problems")).to_contain_text("does not answer")
    service.start()
    expect(page.get_by_text("the service accepts this")).to_be_visible(timeout=15_000)
    expect(page.get_by_label("Workers, at least")).to_be_visible()
    assert all("ERR_" in error for error in tab.errors)
    tab.errors.clear()
