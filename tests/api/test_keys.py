"""Who gets in: everybody on loopback until a key exists, then only keys; never everybody on the network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api import rate_limit
from api.client import ElastaneClient
from service.domain.call_rate import CallRate
from service.domain.errors import SetupError
from tests.api.live import TINY, LiveService, settings, wait_until

Start = Callable[..., LiveService]


def make(live: LiveService, scope: str, key: str | None = None) -> str:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    answer = live.http.post("/v1/keys", json={"name": scope, "scopes": [scope]}, headers=headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["key"])


def status(live: LiveService, method: str, path: str, key: str | None, **sent: object) -> int:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return live.http.request(method, path, headers=headers, **sent).status_code  # type: ignore[arg-type]


def test_the_first_key_closes_the_door_at_once(start: Start) -> None:
    live = start()
    assert status(live, "GET", "/v1/jobs", None) == 200
    admin = make(live, "admin")
    assert status(live, "GET", "/v1/jobs", None) == 401
    assert status(live, "GET", "/v1/jobs", "ek_wrong") == 401
    assert status(live, "GET", "/v1/jobs", admin) == 200


def test_a_key_does_what_its_scope_says_and_no_more(start: Start) -> None:
    live = start()
    admin = make(live, "admin")
    read, submit = make(live, "read", admin), make(live, "submit", admin)
    posts = {key: status(live, "POST", "/v1/jobs", key, json=TINY) for key in (read, submit, admin)}
    lists = {key: status(live, "GET", "/v1/keys", key) for key in (read, submit, admin)}
    assert posts == {read: 403, submit: 201, admin: 201}
    assert lists == {read: 403, submit: 403, admin: 200}


def test_the_quota_of_a_key_is_set_shown_and_said_at_submission(start: Start) -> None:
    live = start()
    admin = {"authorization": f"Bearer {make(live, 'admin')}"}
    asked = {"name": "ci", "scopes": ["submit"], "quota_slots": 2}
    made = live.http.post("/v1/keys", json=asked, headers=admin).json()
    own = {"authorization": f"Bearer {made['key']}"}
    assert live.http.get("/v1/session", headers=own).json()["quota_slots"] == 2
    refused = live.http.post("/v1/jobs", json={**TINY, "workers": 3}, headers=own)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "workers.min")
    job = live.http.post("/v1/jobs", json={**TINY, "workers": {"min": 1, "max": 9}}, headers=own).json()
    assert (job["key_id"], "at most 2 of 9" in job["report"]["workers"]) == (made["id"], True)
    wait_until(lambda: live.http.get(f"/v1/jobs/{job['id']}", headers=own).json()["workers"]["desired"] == 2)
    changed = live.http.post(f"/v1/keys/{made['id']}/quota", json={"slots": 3}, headers=admin)
    assert (changed.status_code, changed.json()["quota_slots"]) == (200, 3)
    assert live.http.get("/v1/cluster", headers=own).json()["quotas"][0]["quota_slots"] == 3
    wait_until(lambda: live.http.get(f"/v1/jobs/{job['id']}", headers=own).json()["workers"]["desired"] == 3)


def test_who_asked_for_a_change_is_in_the_timeline_and_in_the_log(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    live = start()
    admin = {"authorization": f"Bearer {make(live, 'admin')}"}
    with caplog.at_level("INFO", logger="elastane.audit"):
        job_id = live.http.post("/v1/jobs", json=TINY, headers=admin).json()["id"]
        for verb, body in (("scale", {"workers": 2}), ("priority", {"priority": 9}), ("cancel", None)):
            assert live.http.post(f"/v1/jobs/{job_id}/{verb}", json=body or {}, headers=admin).status_code == 202
    events = live.http.get(f"/v1/jobs/{job_id}/events", headers=admin).json()["items"]
    by_key = {event["kind"] for event in events if event["payload"].get("key") == "admin"}
    assert {"submitted", "scaled", "priority_changed"} <= by_key
    assert by_key & {"cancelled", "cancelling"}
    told = [record.getMessage() for record in caplog.records if record.name == "elastane.audit"]
    assert len(told) == 4
    assert all("(admin)" in line and "ek_" not in line for line in told)


def test_who_calls_too_often_is_told_when_to_come_back_and_others_are_not(start: Start) -> None:
    live = start(rate_per_minute=60, rate_burst=5)
    admin = make(live, "admin")
    other = {"authorization": f"Bearer {make(live, 'read', admin)}"}
    own = {"authorization": f"Bearer {admin}"}
    answers = [live.http.get("/v1/jobs", headers=own) for _ in range(6)]
    assert [answer.status_code for answer in answers][-1] == 429
    problem = answers[-1].json()
    assert problem["type"] == "urn:elastane:problem:too-many-requests"
    assert answers[-1].headers["content-type"] == "application/problem+json"
    assert int(answers[-1].headers["retry-after"]) == problem["retry_after_s"] == 1
    assert live.http.get("/v1/jobs", headers=other).status_code == 200
    # The client waits as long as it is told, whatever the call.
    with ElastaneClient(live.url, api_key=admin) as client:
        assert client.create_key(name="patient", scopes=["read"])["name"] == "patient"


def test_who_tries_many_keys_is_slowed_and_who_has_one_is_not(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    # However slow the machine is, no try is given back while the test runs.
    monkeypatch.setattr(rate_limit, "FAILED", CallRate(per_minute=1, burst=3))
    live = start()
    admin = make(live, "admin")
    tries = [status(live, "GET", "/v1/jobs", f"ek_{number}") for number in range(5)]
    assert tries == [401, 401, 401, 429, 429]
    assert live.http.post("/v1/session", json={"key": "ek_x"}).status_code == 429
    assert status(live, "GET", "/v1/jobs", admin) == 200


def test_a_refusal_for_a_missing_scope_comes_before_a_look_at_the_body(start: Start) -> None:
    live = start()
    read = make(live, "read", make(live, "admin"))
    assert status(live, "POST", "/v1/jobs", read, content=b"{") == 403


def test_a_revoked_key_is_none(start: Start) -> None:
    live = start()
    admin = make(live, "admin")
    other = make(live, "read", admin)
    headers = {"authorization": f"Bearer {admin}"}
    found = next(key for key in live.http.get("/v1/keys", headers=headers).json()["items"] if key["name"] == "read")
    assert status(live, "DELETE", f"/v1/keys/{found['id']}", admin) == 204
    assert status(live, "GET", "/v1/jobs", other) == 401


def test_a_secret_is_shown_once_and_never_stored(start: Start) -> None:
    live = start()
    admin = make(live, "admin")
    listed = live.http.get("/v1/keys", headers={"authorization": f"Bearer {admin}"}).text
    assert admin not in listed
    stored = b"".join(path.read_bytes() for path in Path(live.settings.home).rglob("*") if path.is_file())
    assert admin.encode() not in stored


def test_health_asks_for_no_key(start: Start) -> None:
    live = start()
    make(live, "admin")
    assert {status(live, "GET", path, None) for path in ("/healthz", "/readyz", "/metrics", "/docs", "/")} == {200}


def test_a_controller_needs_no_key_beside_its_token(start: Start) -> None:
    live = start()
    _, puppet = live.running()
    make(live, "admin")
    assert puppet.beat().status_code == 200


def test_an_open_address_without_a_key_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as caught:
        LiveService(settings(tmp_path, host="0.0.0.0"))
    error = caught.value.args[0]
    assert "--insecure" in str(error)
    assert SetupError.__name__ in repr(error) or "elastane keys create" in str(error)


def test_an_open_address_with_a_key_starts_and_asks_for_it(start: Start, tmp_path: Path) -> None:
    first = start(tmp_path)
    admin = make(first, "admin")
    first.stop()
    second = start(tmp_path, host="0.0.0.0")
    assert (status(second, "GET", "/v1/jobs", None), status(second, "GET", "/v1/jobs", admin)) == (401, 200)


def test_insecure_said_aloud_lets_everybody_in(start: Start) -> None:
    live = start(host="0.0.0.0", insecure=True, public_url="http://train.example")
    assert live.http.get("/v1/jobs", headers={"host": "train.example"}).status_code == 200
    assert live.http.get("/v1/jobs").status_code == 200


def test_insecure_lets_no_page_in_under_a_name_of_its_own_until_keys_are_asked_for(start: Start) -> None:
    live = start(host="0.0.0.0", insecure=True)
    rebound = {"host": "evil.example"}
    assert live.http.get("/v1/jobs", headers=rebound).status_code == 403
    admin = make(live, "admin")
    assert live.http.get("/v1/jobs", headers=rebound | {"authorization": f"Bearer {admin}"}).status_code == 200


def test_without_any_admin_key_the_machine_of_the_service_can_make_one(start: Start, tmp_path: Path) -> None:
    home = tmp_path / "home"
    live = start(home)
    admin = make(live, "admin")
    (made,) = live.http.get("/v1/keys", headers={"authorization": f"Bearer {admin}"}).json()["items"]
    assert status(live, "DELETE", f"/v1/keys/{made['id']}", admin) == 204
    assert status(live, "GET", "/v1/keys", admin) == 401
    again = local(home, "create", "rescue", "--scope", "admin")["key"]
    assert status(live, "GET", "/v1/keys", again) == 200
    assert [key["name"] for key in local(home, "list")["items"]] == ["admin", "rescue"]
    assert local(home, "revoke", "no-such-key", status=1)["title"] == "No such key"


def test_keys_can_be_made_before_the_first_start_on_the_network(start: Start, tmp_path: Path) -> None:
    home = tmp_path / "home"
    key = local(home, "create", "first", "--scope", "admin")["key"]
    live = start(home)
    assert (status(live, "GET", "/v1/jobs", None), status(live, "GET", "/v1/jobs", key)) == (401, 200)


def local(home: Path, *words: str, status: int = 0) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "api.cli.main", "keys", *words, "--local", "--json"],
        env={**os.environ, "ELASTANE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)
