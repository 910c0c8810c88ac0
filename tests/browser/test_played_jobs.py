"""What needs jobs in some state but no training: acted on together, compared, run again; who keeps whose copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.api.live import LiveService, samples, settings
from tests.browser.chromium import Tab
from tests.browser.conftest import opening


@pytest.fixture(scope="module")
def live(executable: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """A service whose controllers the test plays."""
    started = LiveService(settings(tmp_path_factory.mktemp("played")))
    yield started
    started.stop()


@pytest.fixture
def tab(chromium: Browser, live: LiveService) -> Iterator[Tab]:
    with opening(chromium, live.url) as opened:
        yield opened()


def test_several_jobs_are_paused_and_cancelled_at_once_and_no_other_is_touched(tab: Tab, live: LiveService) -> None:
    ids = {name: live.running(name=name)[0] for name in ("first", "second", "bystander")}
    page = tab.open("/jobs")
    for verb, state in (("Pause", "pausing"), ("Cancel", "cancelling")):
        for name in ("first", "second"):
            page.get_by_label(f"Choose {name}").check()
        page.get_by_role("region", name="Chosen jobs").get_by_role("button", name=verb).click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(f"{verb} 2 jobs?")
        expect(dialog).to_contain_text("Workers given back")
        dialog.get_by_role("button", name=verb).click()
        for name in ("first", "second"):
            expect(page.locator(f"[data-job='{ids[name]}']")).to_contain_text(state)
    assert [live.job(each)["state"] for each in ids.values()] == ["cancelling", "cancelling", "running"]


def test_curves_are_compared_by_step_by_tokens_and_by_time(tab: Tab, live: LiveService) -> None:
    (short, one), (long, other) = live.running(name="short"), live.running(name="long", stage=3)
    one.beat(samples("loss", {step: 4 / step for step in range(1, 11)}), step=10)
    other.beat(samples("loss", {step: 5 / step for step in range(1, 21)}), step=20)
    page = tab.open(f"/compare?jobs={short},{long}")
    figure = page.locator("figure.plot")
    expect(figure).to_have_attribute("data-last", "20")
    expect(page.get_by_role("region", name="Differences")).to_contain_text("stage")
    page.get_by_role("button", name="by tokens").click()
    # A step is four sequences of 32 tokens.
    expect(figure).to_have_attribute("data-last", str(20 * 4 * 32))
    page.get_by_role("button", name="by time").click()
    expect(figure).to_have_attribute("data-chart", "loss by time")
    assert {f"jobs={short}%2C{long}", "by=time"} <= set(page.url.partition("?")[2].split("&"))


def test_a_job_is_run_again_with_changes(tab: Tab, live: LiveService) -> None:
    job_id, _ = live.running(name="again", priority=7)
    page = tab.open(f"/jobs/{job_id}?tab=spec")
    page.get_by_role("link", name="Run again with changes").click()
    expect(page.get_by_text("the service accepts this")).to_be_visible()
    page.get_by_label("Steps", exact=True).fill("21")
    page.get_by_role("button", name="Submit job").click()
    expect(page.locator("h1 .badge")).to_be_visible()
    newest = live.http.get("/v1/jobs", params={"limit": 1}).json()["items"][0]
    before = live.job(job_id)["spec"]
    assert newest["id"] in page.url
    assert newest["spec"] == {**before, "training": {**before["training"], "steps": 21}}


def worker(rank: int, node: str, buddy: int) -> dict[str, Any]:
    where = {"worker_id": f"w{rank}", "pid": 1, "node": node, "device": "cuda:0", "state": "running"}
    return {**where, "rank": rank, "buddy": buddy}


def test_the_cluster_page_says_who_keeps_the_copy_of_whose_shard(tab: Tab, live: LiveService) -> None:
    job_id, puppet = live.running(name="mirrored")
    crew = [worker(0, "10.0.0.1", 2), worker(1, "10.0.0.1", 0), worker(2, "10.0.0.2", 1)]
    puppet.beat(workers=crew, world_size=3)
    page = tab.open("/cluster")
    group = page.locator(f"[data-members='{job_id}']")
    expect(group).to_contain_text("1 of 3 shards are held twice on one node, and would be lost with it")
    copies = group.locator("tbody td:last-child")
    expect(copies).to_have_text(["rank 2, on 10.0.0.2", "rank 0, on the same node", "rank 1, on 10.0.0.1"])
