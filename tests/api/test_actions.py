"""Scale, pause, resume, cancel, delete: legal or a 409 that says the state."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.live import LiveService, Puppet, wait_until


def act(service: LiveService, job_id: str, verb: str, body: Any = None) -> Any:
    return service.http.post(f"/v1/jobs/{job_id}/{verb}", **({} if body is None else {"json": body}))


def ended(service: LiveService) -> str:
    job_id, puppet = service.running()
    assert puppet.end().status_code == 200
    return job_id


def test_scaling_gives_the_controller_other_orders(service: LiveService) -> None:
    job_id, puppet = service.running(workers={"min": 1, "max": 4})
    answer = act(service, job_id, "scale", {"workers": 2})
    assert (answer.status_code, answer.json()["workers"]["max"]) == (202, 2)
    wait_until(lambda: puppet.beat().json()["workers"] == 2)


def test_bounds_are_scaled_as_bounds(service: LiveService) -> None:
    job_id = service.submit()["id"]
    workers = act(service, job_id, "scale", {"workers": {"min": 2, "max": 5}}).json()["workers"]
    assert (workers["min"], workers["max"]) == (2, 5)


NO_SCALE: list[Any] = [
    {},
    {"workers": None},
    {"workers": 0},
    {"workers": "2"},
    {"workers": True},
    {"workers": 1e3},
    {"workers": {"min": 3, "max": 2}},
    {"workers": 2, "x": 1},
    {"worker": 2},
]


@pytest.mark.parametrize("body", NO_SCALE, ids=str)
def test_a_scale_that_means_nothing_is_refused(service: LiveService, body: Any) -> None:
    job_id = service.submit()["id"]
    answer = act(service, job_id, "scale", body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


def test_a_pause_reaches_the_controller_and_a_resume_launches_anew(service: LiveService) -> None:
    job_id, puppet = service.running()
    assert act(service, job_id, "pause").status_code == 202
    assert puppet.beat(phase="pausing").json()["action"] == "pause"
    puppet.end("paused")
    assert service.job(job_id)["state"] == "paused"
    assert act(service, job_id, "resume").status_code == 202
    wait_until(lambda: service.puppet(job_id).order.number == 2)


def test_a_cancel_reaches_the_controller_and_ends_the_job(service: LiveService) -> None:
    job_id, puppet = service.running()
    assert act(service, job_id, "cancel").json()["state"] == "cancelling"
    assert puppet.beat().json()["action"] == "cancel"
    puppet.end("cancelled")
    assert service.job(job_id)["state"] == "cancelled"


def test_a_cancel_said_twice_is_the_same_cancel(service: LiveService) -> None:
    job_id = service.submit(workers=4000)["id"]
    assert [act(service, job_id, "cancel").status_code for _ in range(2)] == [202, 202]


@pytest.mark.parametrize(
    ("verb", "body"), [("scale", {"workers": 2}), ("pause", None), ("resume", None), ("cancel", None)]
)
def test_an_ended_job_is_not_moved_and_says_its_state(service: LiveService, verb: str, body: Any) -> None:
    answer = act(service, ended(service), verb, body)
    assert (answer.status_code, answer.json()["state"]) == (409, "succeeded")
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_live_job_is_not_deleted(service: LiveService) -> None:
    job_id, _ = service.running()
    answer = service.http.delete(f"/v1/jobs/{job_id}")
    assert (answer.status_code, answer.json()["state"]) == (409, "running")


def test_an_ended_job_is_deleted_and_gone(service: LiveService) -> None:
    job_id = ended(service)
    assert service.http.delete(f"/v1/jobs/{job_id}").status_code == 204
    assert service.http.get(f"/v1/jobs/{job_id}").status_code == 404


def test_the_token_of_one_attempt_opens_no_other(service: LiveService) -> None:
    _, one = service.running()
    _, other = service.running()
    stranger = Puppet(one.http, other.order, service.launcher)
    answer = one.http.get(stranger.path, headers=one.headers)
    assert (answer.status_code, answer.json()["type"]) == (401, "urn:elastane:problem:attempt-token-wrong")


def test_without_a_token_nothing_internal_answers(service: LiveService) -> None:
    _, puppet = service.running()
    assert service.http.get(puppet.path).status_code == 401
    assert service.http.post(f"{puppet.path}/heartbeat", json={}).status_code == 401


def test_a_controller_gets_its_brief(service: LiveService) -> None:
    job_id = service.submit()["id"]
    brief = service.puppet(job_id).brief().json()
    assert (brief["job_id"], brief["spec"]["training"]["steps"]) == (job_id, 20)


def test_an_attempt_that_is_over_is_told_so_with_a_conflict(service: LiveService) -> None:
    _, puppet = service.running()
    puppet.end()
    assert puppet.beat().status_code == 409


def test_a_heartbeat_of_another_shape_is_refused(service: LiveService) -> None:
    _, puppet = service.running()
    answer = service.http.post(f"{puppet.path}/heartbeat", json={"job_id": 1}, headers=puppet.headers)
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:elastane:problem:invalid-heartbeat")


def test_a_priority_changes_in_any_state_but_an_ended_one(service: LiveService) -> None:
    job_id, puppet = service.running()
    for _ in range(2):
        answer = act(service, job_id, "priority", {"priority": 90})
        assert (answer.status_code, answer.json()["priority"]) == (202, 90)
    changes = [e for e in service.http.get(f"/v1/jobs/{job_id}/events").json()["items"] if "priority" in e["kind"]]
    assert [event["payload"] for event in changes] == [{"from": 50, "to": 90}]
    puppet.end()
    refused = act(service, job_id, "priority", {"priority": 10})
    assert (refused.status_code, refused.json()["state"]) == (409, "succeeded")
    for body in ({}, {"priority": 101}, {"priority": "9"}, {"priority": True}):
        assert act(service, job_id, "priority", body).status_code == 422


def test_why_a_job_waits_is_told_with_numbers(service: LiveService) -> None:
    job_id = service.submit(workers=2000, priority=70)["id"]
    wait_until(lambda: "Needs 2000" in service.job(job_id)["reason"])
    found = service.http.get(f"/v1/jobs/{job_id}/explain").json()
    assert (found["state"], found["needs_slots"], found["slots"]) == ("queued", 2000, 1000)
    assert f"`elastane scale {job_id} N` lowers its minimum" in found["sentences"][-1]
    running, _ = service.running()
    assert running in {each["job_id"] for each in service.http.get(f"/v1/jobs/{job_id}/explain").json()["ahead"]}
    assert act(service, job_id, "cancel").status_code == 202
    assert service.http.get("/v1/jobs/00000000-0000-7000-8000-000000000000/explain").status_code == 404
