"""Server-sent events: each once, in order, from a cursor on, over lost connections and restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from api.client import ElastaneClient, Notice, parse_events
from tests.api.live import LiveService, event, samples


@contextmanager
def stream(service: LiveService, path: str, *, last: str | None = None) -> Iterator[Iterator[Notice]]:
    headers = {} if last is None else {"last-event-id": last}
    with service.http.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield parse_events(response.iter_lines())


def numbers(notices: list[Notice]) -> list[int]:
    return [n.data["payload"]["number"] for n in notices if n.event == "event" and n.data["kind"] == "noted"]


def until(notices: Iterator[Notice], number: int) -> list[Notice]:
    """The notices up to the event of this number."""
    found: list[Notice] = []
    for notice in notices:
        found.append(notice)
        if numbers([notice]) == [number]:
            return found
    raise AssertionError(f"the stream ended before number {number}")


def test_a_stream_tells_events_samples_and_states_of_its_job(service: LiveService) -> None:
    job_id, puppet = service.running()
    other_id, other = service.running()
    with stream(service, f"/v1/jobs/{job_id}/stream") as notices:
        other.beat(event("noted", number=0))
        puppet.beat(samples("loss", {2: 1.5}), event("noted", number=1), step=2)
        puppet.end()
        seen: list[Notice] = []
        while not any(n.event == "state" and n.data["state"] == "succeeded" for n in seen):
            seen.append(next(notices))
    assert {n.event for n in seen} == {"event", "sample", "state"}
    assert {n.data["job_id"] for n in seen} == {job_id}
    points = [s for n in seen if n.event == "sample" for s in n.data["samples"]]
    assert [s["value"] for s in points] == [1.5]
    # Times have one form, here as in the answers of the REST API.
    times = [n.data["at"] for n in seen if n.event == "event"] + [s["at"] for s in points]
    assert all(time.endswith("Z") for time in [*times, service.job(job_id)["created_at"]])
    assert other_id != job_id


def test_ids_grow_and_the_stream_of_all_has_every_job(service: LiveService) -> None:
    with stream(service, "/v1/stream") as notices:
        one, other = service.submit()["id"], service.submit()["id"]
        seen: list[Notice] = []
        while not {one, other} <= {n.data["job_id"] for n in seen}:
            seen.append(next(notices))
    ids = [int(n.id or 0) for n in seen]
    assert ids == sorted(set(ids))


def test_a_client_that_comes_back_with_its_last_id_misses_nothing_and_sees_nothing_twice(service: LiveService) -> None:
    job_id, puppet = service.running()
    path = f"/v1/jobs/{job_id}/stream"
    with stream(service, path) as notices:
        puppet.beat(*[event("noted", number=n) for n in range(10)])
        seen = until(notices, 4)
    puppet.beat(*[event("noted", number=n) for n in range(10, 20)])
    with stream(service, path, last=seen[-1].id) as notices:
        puppet.beat(*[event("noted", number=n) for n in range(20, 30)])
        seen += until(notices, 29)
    assert numbers(seen) == list(range(30))
    assert len({n.id for n in seen}) == len(seen)


def test_a_cursor_may_be_given_in_the_address(service: LiveService) -> None:
    job_id, puppet = service.running()
    with stream(service, f"/v1/jobs/{job_id}/stream") as notices:
        puppet.beat(event("noted", number=0), event("noted", number=1))
        first = until(notices, 0)[-1]
    with stream(service, f"/v1/jobs/{job_id}/stream?after={first.id}") as notices:
        assert numbers(until(notices, 1)) == [1]


def test_thirty_reconnections_while_events_come_leave_no_gap(service: LiveService) -> None:
    job_id, puppet = service.running()
    beats = threading.Thread(target=lambda: [puppet.beat(event("noted", number=n)) for n in range(60)])
    seen: list[Notice] = []
    last: str | None = None
    with stream(service, f"/v1/jobs/{job_id}/stream") as notices:
        beats.start()
        seen.append(next(notices))
    while 59 not in numbers(seen):
        last = seen[-1].id
        with stream(service, f"/v1/jobs/{job_id}/stream", last=last) as notices:
            for notice in notices:
                seen.append(notice)
                if len(seen) % 10 == 0 or numbers([notice]) == [59]:
                    break
    beats.join()
    assert numbers(seen) == list(range(60))
    assert len({n.id for n in seen}) == len(seen)


def test_a_stream_goes_on_over_a_restart_of_the_service(start: Callable[..., LiveService], tmp_path: Path) -> None:
    first = start(tmp_path)
    job_id, puppet = first.running()
    with stream(first, f"/v1/jobs/{job_id}/stream") as notices:
        puppet.beat(event("noted", number=0))
        seen = until(notices, 0)
    puppet.beat(event("noted", number=1))
    first.stop()
    second = start(tmp_path, launcher=first.launcher)
    puppet.http = second.http
    puppet.beat(event("noted", number=2))
    with stream(second, f"/v1/jobs/{job_id}/stream", last=seen[-1].id) as notices:
        assert numbers(until(notices, 2)) == [1, 2]
    second.stop()


def test_a_cursor_of_another_database_gets_a_resync_and_a_new_place(service: LiveService) -> None:
    job_id = service.submit()["id"]
    with stream(service, f"/v1/jobs/{job_id}/stream", last="999999999999") as notices:
        first = next(notices)
    assert first.event == "resync"
    assert int(first.id or 0) < 999999999999


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "9" * 40, "\xb2"])
def test_a_last_event_id_of_no_stream_is_refused(service: LiveService, last: str) -> None:
    answer = service.http.get("/v1/stream", headers={b"last-event-id": last.encode("latin-1")})
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


def test_a_client_that_does_not_read_holds_nobody_up(service: LiveService) -> None:
    job_id, puppet = service.running()
    with service.http.stream("GET", "/v1/stream"), stream(service, f"/v1/jobs/{job_id}/stream") as notices:
        for n in range(20):
            puppet.beat(event("noted", number=n, padding="x" * 20_000))
        assert numbers(until(notices, 19)) == list(range(20))


def test_open_streams_do_not_hold_up_the_end_of_the_service(start: Callable[..., LiveService]) -> None:
    live = start()
    with httpx.Client(base_url=live.url, trust_env=False) as http, http.stream("GET", "/v1/stream") as response:
        began = time.monotonic()
        live.stop()
        assert list(parse_events(response.iter_lines())) == []
    assert time.monotonic() - began < 8


def test_the_python_client_reads_the_same_stream(service: LiveService) -> None:
    job_id, puppet = service.running()
    puppet.beat(event("noted", number=0))
    with ElastaneClient(service.url) as client:
        seen = until(client.stream(job_id, last_event_id="0"), 0)
    assert next(n.data["kind"] for n in seen if n.event == "event") == "submitted"
