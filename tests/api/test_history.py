"""What a job leaves behind: events, series, members, lines, checkpoints."""

from __future__ import annotations

import json

import pytest

from tests.api.live import LiveService, event, now, samples


def test_the_timeline_is_read_in_parts_without_gap_or_duplicate(service: LiveService) -> None:
    job_id, puppet = service.running()
    puppet.beat(*[event("noted", number=n) for n in range(5)])
    whole = service.http.get(f"/v1/jobs/{job_id}/events").json()["items"]
    after, parts = 0, []
    while page := service.http.get(f"/v1/jobs/{job_id}/events", params={"after": after, "limit": 2}).json():
        parts += page["items"]
        if not page["items"]:
            break
        after = page["next_after"]
    assert parts == whole
    assert [e["payload"]["number"] for e in whole if e["kind"] == "noted"] == [0, 1, 2, 3, 4]
    assert whole[0]["kind"] == "submitted"


def test_a_heartbeat_sent_twice_tells_its_facts_once(service: LiveService) -> None:
    job_id, puppet = service.running()
    puppet.beat(event("noted", number=1))
    puppet.said -= 1
    puppet.beat(event("noted", number=1))
    kinds = [e["kind"] for e in service.http.get(f"/v1/jobs/{job_id}/events").json()["items"]]
    assert kinds.count("noted") == 1


def test_a_spike_of_one_step_survives_downsampling(service: LiveService) -> None:
    job_id, puppet = service.running()
    puppet.beat(samples("loss", {step: 1000.0 if step == 477 else 1.0 for step in range(1, 1001)}))
    answer = service.http.get(f"/v1/jobs/{job_id}/metrics", params={"names": "loss", "points": 10}).json()
    (loss,) = answer["series"]
    assert (loss["name"], loss["rank"], loss["total"]) == ("loss", None, 1000)
    assert len(loss["points"]) == loss["shown"] <= 10
    assert max(point["max"] for point in loss["points"]) == 1000.0


def test_a_loss_that_is_no_number_is_null_and_the_rest_is_there(service: LiveService) -> None:
    job_id, puppet = service.running()
    body = json.dumps(samples("loss", {1: 1.0, 3: 2.0})["samples"])
    wild = [*json.loads(body), {**json.loads(body)[0], "step": 2, "value": float("nan")}]
    answer = puppet.http.post(
        f"{puppet.path}/heartbeat",
        content=json.dumps({**_standing(puppet.order), "facts": [{"samples": wild}]}),
        headers={**puppet.headers, "content-type": "application/json"},
    )
    assert answer.status_code == 200
    (loss,) = service.http.get(f"/v1/jobs/{job_id}/metrics", params={"names": "loss"}).json()["series"]
    assert [(point["step"], point["value"]) for point in loss["points"]] == [(1, 1.0), (2, None), (3, 2.0)]


def _standing(order: object) -> dict[str, object]:
    said = {"job_id": order.job_id, "attempt_id": order.attempt_id}  # type: ignore[attr-defined]
    return {**said, "phase": "running", "step": 3, "generation": 1, "world_size": 1, "at": now()}


def test_per_rank_series_carry_their_rank_and_unit(service: LiveService) -> None:
    job_id, puppet = service.running()
    puppet.beat(*[samples("comm_bytes", {1: 5.0}, rank=rank) for rank in (0, 1)], samples("tokens_per_s", {1: 9.0}))
    found = service.http.get(f"/v1/jobs/{job_id}/metrics").json()["series"]
    assert {(s["name"], s["rank"], s["unit"]) for s in found} == {
        ("comm_bytes", 0, "bytes"),
        ("comm_bytes", 1, "bytes"),
        ("tokens_per_s", None, "tokens/s"),
    }


def test_a_job_shows_what_each_rank_last_measured(service: LiveService) -> None:
    job_id, puppet = service.running()
    puppet.beat(*[samples("mem_params_bytes", {1: 10.0, 2: 20.0 + rank}, rank=rank) for rank in (0, 1)], step=2)
    per_rank = service.job(job_id)["memory"]["per_rank"]
    assert [(row["rank"], row["params_bytes"], row["grads_bytes"]) for row in per_rank] == [
        (0, 20, None),
        (1, 21, None),
    ]


def test_a_rank_that_is_no_more_leaves_no_memory_behind(service: LiveService) -> None:
    job_id, puppet = service.running()
    puppet.beat(*[samples("mem_params_bytes", {1: 10.0}, rank=rank) for rank in (0, 1, 2)])
    late, fresh = samples("mem_params_bytes", {2: 11.0}, rank=2), samples("mem_params_bytes", {3: 12.0}, rank=0)
    fresh["samples"][0]["generation"] = 2
    puppet.beat(late, fresh, step=3, generation=2)
    per_rank = service.job(job_id)["memory"]["per_rank"]
    assert [(row["rank"], row["params_bytes"]) for row in per_rank] == [(0, 12)]


def test_a_running_job_says_when_it_was_heard_and_how_it_does(service: LiveService) -> None:
    job_id, puppet = service.running()
    puppet.beat(samples("loss", {2: 3.25}), samples("tokens_per_s", {2: 1e4}), step=2)
    job = service.job(job_id)
    assert (job["state"], job["step"], job["loss"], job["throughput_tokens_per_s"]) == ("running", 2, 3.25, 1e4)
    assert job["heartbeat_at"] >= job["started_at"]


def test_the_members_of_the_present_generation_are_listed(service: LiveService) -> None:
    job_id, _ = service.running()
    items = service.http.get(f"/v1/jobs/{job_id}/workers").json()["items"]
    own = {"rank": 0, "pid": 1, "node": "n", "device": "cpu", "state": "running"}
    assert items == [{**own, "buddy": None}]


def lines(*texts: str, rank: int | None = 0) -> dict[str, object]:
    return {"logs": [{"rank": rank, "at": now(), "level": "info", "text": text} for text in texts]}


def test_lines_are_read_on_from_a_cursor_and_by_rank(service: LiveService) -> None:
    job_id, puppet = service.running()
    puppet.beat(lines("a", "b"), lines("c", rank=1))
    first = service.http.get(f"/v1/jobs/{job_id}/logs", params={"limit": 2}).json()
    rest = service.http.get(f"/v1/jobs/{job_id}/logs", params={"after": first["next_after"]}).json()
    assert [line["text"] for line in first["items"] + rest["items"]] == ["a", "b", "c"]
    assert [x["text"] for x in service.http.get(f"/v1/jobs/{job_id}/logs?rank=1").json()["items"]] == ["c"]


def test_followed_lines_come_until_the_job_ends(service: LiveService) -> None:
    job_id, puppet = service.running()
    puppet.beat(lines("before"))
    texts = []
    with service.http.stream("GET", f"/v1/jobs/{job_id}/logs", params={"follow": "true"}) as stream:
        for number, line in enumerate(stream.iter_lines()):
            texts.append(json.loads(line)["text"])
            if number == 0:
                puppet.beat(lines("after"))
                puppet.end()
    assert texts == ["before", "after"]


def test_a_huge_line_does_no_harm(service: LiveService) -> None:
    job_id, puppet = service.running()
    assert puppet.beat(lines("x" * 5_000_000)).status_code == 200
    (line,) = service.http.get(f"/v1/jobs/{job_id}/logs").json()["items"]
    assert len(line["text"]) < 20_000


def test_a_checkpoint_asked_for_is_ordered_and_then_listed(service: LiveService) -> None:
    job_id, puppet = service.running()
    request = service.http.post(f"/v1/jobs/{job_id}/checkpoints")
    assert request.status_code == 202
    assert puppet.beat().json()["checkpoint_request"] == request.json()["id"]
    report = {"step": 1, "uri": "u", "size_bytes": 9, "files": 1, "duration_s": 0.1, "at": now()}
    puppet.beat({"checkpoint": {**report, "request_id": request.json()["id"]}})
    items = service.http.get(f"/v1/jobs/{job_id}/checkpoints").json()["items"]
    assert [(item["step"], item["size_bytes"]) for item in items] == [(1, 9)]
    last = service.http.get(f"/v1/jobs/{job_id}/events").json()["items"][-1]
    assert (last["kind"], last["payload"]["size_bytes"]) == ("checkpoint_saved", 9)


def test_a_job_that_does_not_train_cannot_write_a_checkpoint(service: LiveService) -> None:
    job_id = service.submit(workers=4000)["id"]
    assert service.http.post(f"/v1/jobs/{job_id}/checkpoints").json()["state"] == "queued"


@pytest.mark.parametrize("part", ["", "/events", "/metrics", "/workers", "/logs", "/checkpoints", "/stream"])
def test_of_an_unknown_job_there_is_nothing(service: LiveService, part: str) -> None:
    answer = service.http.get(f"/v1/jobs/0198c0de-0000-7000-8000-000000000000{part}")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:elastane:problem:job-not-found")
