"""The page in a real Chromium: the first chart of a job of a million steps, a spike at every zoom, ten thousand jobs,
and an hour of streaming that must leave the heap flat.

`python -m benchmarks.dashboard`; needs a Chromium and the built page. The service is a process on loopback with an
SQLite file; the controller of the hour is played: each of its 3,600 heartbeats says three steps of the group and the
memory of eight ranks, as a real one does in a second. They are sent as fast as `--speed` says, the page is the same.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx
from playwright.sync_api import Browser, CDPSession, Page
from rich.console import Console

from benchmarks import results
from benchmarks.service_http import HISTORY, POINTS, SPEC, SPIKE, Running, alone, attempt, fill, lengthen, roll
from tests.browser.chromium import NOT_FOUND, browser, find_chromium

T = TypeVar("T")
RANKS, OPENINGS, HEARTBEATS, STEPS_EACH, LOOK_EVERY = 8, 7, 3600, 3, 60
WINDOWS = (None, (500_000, 1_000_000), (770_000, 780_000), (777_700, 777_800), (777_770, 777_785))
GROUP = ("loss", "grad_norm", "lr", "tokens_per_s", "step_s", "compute_s", "comm_s", "data_s", "optimizer_s", "workers")
MEMORY = ("params", "grads", "optimizer", "activations_peak", "gathered_peak", "process", "predicted", "host", "nvme")
PATIENCE_S = 60.0
# The moment at which the loss has points and the frame that draws them is over.
FIRST_CHART = """
new MutationObserver(() => {
  const figure = document.querySelector('figure[data-chart="Loss"]');
  if (window.firstChart || !figure || Number(figure.dataset.points) === 0) return;
  requestAnimationFrame(() => setTimeout(() => (window.firstChart ??= performance.now())));
}).observe(document, {subtree: true, childList: true, attributes: true});
"""
# Pixels drawn in the upper third of the chart, at the step and on the emptier side of it: where the samples around a
# spike were thinned, its line to the next one fills the other side.
INKED = """
([step, from, to]) => {
  const figure = document.querySelector('figure[data-chart="Loss"]');
  const [over, canvas] = [figure.querySelector('.u-over'), figure.querySelector('canvas')];
  const ratio = canvas.width / canvas.clientWidth;
  const at = over.offsetLeft + (over.offsetWidth * (step - from)) / (to - from);
  const inked = (x) => {
    const area = [(x - 4) * ratio, over.offsetTop * ratio, 8 * ratio, (over.offsetHeight / 3) * ratio];
    return canvas.getContext('2d').getImageData(...area).data.filter((byte, i) => i % 4 === 3 && byte > 0).length;
  };
  return [inked(at), Math.min(inked(at - 40), inked(at + 40))];
}
"""
SCROLL = """
async ([frames, pixels]) => {
  const taken = [];
  let [last, rows] = [performance.now(), 0];
  for (let i = 0; i < frames; i += 1) {
    scrollBy(0, pixels);
    await new Promise(requestAnimationFrame);
    taken.push((performance.now() - last) / 1000);
    last = performance.now();
    rows = Math.max(rows, document.querySelectorAll('[role=row][data-job]').length);
  }
  return {taken, rows};
}
"""


@dataclass
class Tab:
    """A page and what its browser says of its memory."""

    page: Page
    debugger: CDPSession
    heap_bytes: list[float] = field(default_factory=list)
    nodes: list[float] = field(default_factory=list)

    def look(self) -> None:
        """What is left after the garbage is gone."""
        self.debugger.send("HeapProfiler.collectGarbage")
        self.heap_bytes.append(self.debugger.send("Runtime.getHeapUsage")["usedSize"])
        self.nodes.append(self.debugger.send("Memory.getDOMCounters")["nodes"])


def settled(work: Coroutine[Any, Any, T]) -> T:
    """In a thread of its own: the browser's library has its loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def opened(chromium: Browser, ours: Running, place: str, *, script: str = "") -> Tab:
    context = chromium.new_context(viewport={"width": 1400, "height": 1000})
    page = context.new_page()
    if script:
        page.add_init_script(script)
    page.goto(f"{ours.url}/#{place}")
    return Tab(page, context.new_cdp_session(page))


def wait_for(said: Callable[[], Any], what: str) -> Any:
    until = time.monotonic() + PATIENCE_S
    while not (found := said()):
        if time.monotonic() > until:
            raise RuntimeError(f"{what} did not happen within {PATIENCE_S} s")
        time.sleep(0.05)
    return found


def chart(page: Page) -> dict[str, str]:
    found: dict[str, str] = page.locator('figure[data-chart="Loss"]').evaluate("figure => ({...figure.dataset})")
    return found


# ---- a job of a million steps --------------------------------------------------------------------------------------


def submit(ours: Running) -> str:
    answer = httpx.post(f"{ours.url}/v1/jobs", json=SPEC, trust_env=False).raise_for_status()
    return str(answer.json()["id"])


async def long_job(ours: Running, job_id: str) -> None:
    """POINTS steps of the loss and of the memory of each rank, rolled up as the service does within a minute."""
    await lengthen(ours.database, job_id)
    for rank in range(RANKS):
        await lengthen(ours.database, job_id, name="mem_params_bytes", rank=rank)
    await roll(ours.database, job_id)


def first_chart(chromium: Browser, ours: Running, job_id: str) -> dict[str, float]:
    """Seconds from an empty cache to the drawn loss, the median and the worst of some openings."""
    taken = []
    for _ in range(OPENINGS):
        tab = opened(chromium, ours, f"/jobs/{job_id}", script=FIRST_CHART)
        taken.append(wait_for(functools.partial(tab.page.evaluate, "window.firstChart ?? 0"), "the first chart") / 1000)
        tab.page.context.close()
    return {"median_s": statistics.median(taken), "worst_s": max(taken)}


def spikes(chromium: Browser, ours: Running, job_id: str) -> dict[str, bool]:
    """Whether the spike of one step is drawn, whatever part of the run is looked at."""
    page, seen = opened(chromium, ours, f"/jobs/{job_id}").page, {}
    for window in WINDOWS:
        first, last = window or (0, POINTS)
        page.goto(f"{ours.url}/#/jobs/{job_id}?smooth=0.97" + (f"&steps={first}-{last}" if window else ""))
        page.wait_for_timeout(2000)
        at, beside = page.evaluate(INKED, [SPIKE, first, last])
        seen[f"{first}-{last}"] = bool(at > beside + 20)
    page.context.close()
    return seen


# ---- ten thousand jobs ---------------------------------------------------------------------------------------------


def scrolling(chromium: Browser, ours: Running) -> dict[str, float]:
    """All jobs loaded by scrolling down, then a way through them frame by frame."""
    page = opened(chromium, ours, "/jobs").page
    foot, began = page.locator(".table-foot"), time.perf_counter()

    def at_the_end() -> bool:
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        return foot.inner_text().endswith("in all")

    wait_for(at_the_end, "the last job in the list")
    loaded_s, total = time.perf_counter() - began, int(foot.inner_text().split()[0])
    page.evaluate("scrollTo(0, 0)")
    found = page.evaluate(SCROLL, [400, 300])
    cuts = statistics.quantiles(found["taken"], n=100, method="inclusive")
    page.context.close()
    frames = {"frame_p50_s": cuts[49], "frame_p95_s": cuts[94], "frame_worst_s": max(found["taken"])}
    return {"jobs": total, "loaded_s": loaded_s, "rows_in_document": found["rows"], **frames}


# ---- an hour -------------------------------------------------------------------------------------------------------


def hour(chromium: Browser, ours: Running, *, speed: float) -> dict[str, Any]:
    """The page of the job and the list of jobs, side by side, while the job says an hour's worth."""
    job_id, name, token = settled(attempt(ours.database))
    tabs = {place: opened(chromium, ours, place) for place in (f"/jobs/{job_id}", "/jobs")}
    began = time.monotonic()
    with httpx.Client(base_url=ours.url, timeout=60, trust_env=False) as http:
        for number in range(HEARTBEATS):
            path, headers = f"/internal/v1/attempts/{name}/heartbeat", {"authorization": f"Bearer {token}"}
            http.post(path, json=_beat(job_id, name, number), headers=headers).raise_for_status()
            time.sleep(max(0.0, began + (number + 1) / speed - time.monotonic()))
            if number % LOOK_EVERY == LOOK_EVERY - 1:
                for tab in tabs.values():
                    tab.look()
    page, last = tabs[f"/jobs/{job_id}"].page, str(HEARTBEATS * STEPS_EACH)
    wait_for(lambda: chart(page)["last"] == last, "the last step on the chart")
    if chart(page)["covered"] != last:
        raise RuntimeError(f"of {last} steps the chart has {chart(page)['covered']}")
    return {
        "took_s": time.monotonic() - began,
        **{kind: _quarters(tab) for kind, tab in zip(("job", "jobs"), tabs.values(), strict=True)},
    }


def _quarters(tab: Tab) -> dict[str, Any]:
    """The highest of each quarter: points are thinned in bursts, so a moment says nothing. The first one fills up."""
    heap = [max(part) for part in _split(tab.heap_bytes)]
    nodes = [max(part) for part in _split(tab.nodes)]
    return {"heap_bytes": heap, "nodes": nodes, "last/second": heap[-1] / heap[1]}


def _split(values: Sequence[float]) -> list[Sequence[float]]:
    each = len(values) // 4
    return [values[part * each : (part + 1) * each] for part in range(4)]


def _beat(job_id: str, name: str, number: int) -> dict[str, Any]:
    at, steps = datetime.now(UTC).isoformat(), range(number * STEPS_EACH + 1, (number + 1) * STEPS_EACH + 1)
    of = {"generation": 1, "at": at}
    group = [{"name": each, "step": step, "value": 1 + 1 / step, **of} for step in steps for each in GROUP]
    memory = [
        {"name": f"mem_{kind}_bytes", "rank": rank, "step": steps[-1], "value": 1e9 + number, **of}
        for rank in range(RANKS)
        for kind in MEMORY
    ]
    workers = [
        {"worker_id": f"w{rank}", "rank": rank, "pid": 1, "node": "n", "device": "cpu", "state": "running"}
        for rank in range(RANKS)
    ]
    return {
        **{"job_id": job_id, "attempt_id": name, "phase": "running", "step": steps[-1], "generation": 1, "at": at},
        **{"world_size": RANKS, "workers": workers, "facts_from": number, "facts": [{"samples": group + memory}]},
    }


# ---- all of it -----------------------------------------------------------------------------------------------------


def figures(*, speed: float) -> dict[str, Any]:
    executable = find_chromium()
    if executable is None:
        raise SystemExit(NOT_FOUND)
    with tempfile.TemporaryDirectory() as folder, alone(Path(folder)) as ours, browser(executable) as chromium:
        job_id = submit(ours)
        settled(long_job(ours, job_id))
        of_a_million = {
            "first_chart": first_chart(chromium, ours, job_id),
            "spike is drawn": spikes(chromium, ours, job_id),
        }
        submit(ours)
        streamed = hour(chromium, ours, speed=speed)
        settled(fill(ours.database, HISTORY))
        return {
            f"{POINTS:,} steps x {RANKS} ranks": of_a_million,
            "an hour of streaming": streamed,
            f"{HISTORY:,} jobs": scrolling(chromium, ours),
        }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard")
    parser.add_argument("--speed", type=float, default=40.0, help="seconds of the job in one of ours")
    asked, console = parser.parse_args(), Console()
    found = figures(speed=asked.speed)
    console.print_json(data=found)
    console.print(f"written to {results.write('dashboard', settings={'speed': asked.speed}, figures=found)}")


if __name__ == "__main__":
    main()
