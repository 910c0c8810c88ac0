"""The `elastane` command against a live service: what it prints, how it ends."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.api.live import LiveService, Puppet, event, samples, wait_until

SPEC = "model: gpt-tiny\ntraining: {steps: 20, batch_size: 4, micro_batch_size: 2, seq_len: 32}\n"


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return str(path)


def run(service: LiveService, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), env=environment(service, **env), capture_output=True, text=True, timeout=60)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "api.cli.main", *words]


def environment(service: LiveService, **env: str) -> dict[str, str]:
    return {**os.environ, "ELASTANE_URL": service.url, "COLUMNS": "200", **env}


def read(service: LiveService, *words: str) -> Any:
    done = run(service, *words, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_a_job_is_submitted_with_settings_and_listed(service: LiveService, spec: str) -> None:
    job = read(service, "submit", spec, "--set", "training.steps=7", "--set", "name=by-command")
    assert job["steps"] == 7
    assert job["id"] in {one["id"] for one in read(service, "jobs", "--name", "by-command")["items"]}
    assert "by-command" in run(service, "jobs", "--name", "by-command").stdout


def test_each_reading_command_prints_its_document(service: LiveService) -> None:
    job_id, puppet = service.running()
    puppet.beat(event("noted", number=1), samples("loss", {1: 2.0}), {"logs": [_line("hello [bold]")]})
    assert read(service, "show", job_id)["id"] == job_id
    assert [e["kind"] for e in read(service, "events", job_id)["items"]][-1] == "noted"
    assert read(service, "logs", job_id)["text"] == "hello [bold]"
    assert read(service, "checkpoints", job_id) == {"items": []}
    assert read(service, "cluster")["slots"] == 1000
    assert "hello [bold]" in run(service, "logs", job_id).stdout


def _line(text: str) -> dict[str, object]:
    return {"rank": 0, "at": "2026-01-01T00:00:00Z", "text": text}


@pytest.mark.parametrize("words", [["show"], ["events"], ["jobs"], ["cluster"], ["checkpoints"]])
def test_people_get_text_not_json(service: LiveService, words: list[str]) -> None:
    job_id, _ = service.running()
    done = run(service, *words, *([job_id] if words[0] not in ("jobs", "cluster") else []))
    assert done.returncode == 0, done.stderr
    assert not done.stdout.lstrip().startswith("{")


def test_a_job_is_scaled_paused_resumed_and_cancelled(service: LiveService) -> None:
    job_id, puppet = service.running()
    assert read(service, "scale", job_id, "1:3")["workers"]["max"] == 3
    assert read(service, "scale", job_id, "2")["workers"]["max"] == 2
    assert read(service, "pause", job_id)["state"] == "pausing"
    puppet.end("paused")
    assert read(service, "resume", job_id)["state"] in ("queued", "starting")
    assert read(service, "cancel", job_id)["state"] in ("cancelling", "cancelled")


def test_a_plan_is_printed_with_its_recommendation(service: LiveService, spec: str) -> None:
    assert "recommended" in run(service, "plan", spec).stdout
    assert read(service, "plan", spec)["recommendation"]["why"]


def test_a_deepspeed_configuration_is_printed_as_a_spec_that_can_be_submitted(
    service: LiveService, tmp_path: Path
) -> None:
    config, imported = tmp_path / "ds.json", tmp_path / "spec.yaml"
    config.write_text('{"zero_optimization": {"stage": 2, "overlap_comm": true}, "train_batch_size": 8}')
    done = run(service, "import-ds", str(config), "--set", "model=gpt-tiny")
    imported.write_text(done.stdout)
    assert (done.returncode, "ignored  zero_optimization.overlap_comm: " in done.stderr) == (0, True)
    assert read(service, "submit", str(imported))["spec"]["training"]["batch_size"] == 8
    config.write_text('{"optimizer": {"type": "OneBitAdam"}}')
    refused = run(service, "import-ds", str(config))
    assert (refused.returncode, "refused  optimizer.type: " in refused.stderr) == (1, True)


def test_a_refusal_names_field_and_fix_and_ends_with_1(service: LiveService, spec: str) -> None:
    done = run(service, "submit", spec, "--set", "training.step=3")
    assert (done.returncode, done.stdout) == (1, "")
    assert "training.step" in done.stderr
    assert "fix:" in done.stderr
    assert done.stderr.count("training.step:") == 1
    assert "Traceback" not in done.stderr


def test_a_refusal_for_machines_is_the_problem_itself(service: LiveService) -> None:
    done = run(service, "show", "nope", "--json")
    assert (done.returncode, json.loads(done.stdout)["status"]) == (1, 404)


@pytest.mark.parametrize(
    "words",
    [["submit", "/no/such/file"], ["scale", "x", "many"], ["jobs", "--limit", "0"], ["nope"], ["show"]],
)
def test_wrong_usage_ends_with_2(service: LiveService, words: list[str]) -> None:
    done = run(service, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_no_service_ends_with_1_and_a_sentence(service: LiveService) -> None:
    done = run(service, "jobs", ELASTANE_URL="http://127.0.0.1:1")
    assert done.returncode == 1
    assert "elastane serve" in done.stderr
    assert "Traceback" not in done.stderr


def test_following_ends_with_0_when_the_job_succeeded(service: LiveService, spec: str) -> None:
    done, puppet = follow(service, spec, "followed-well")
    puppet.beat(event("resized", **{"from": 2, "to": 3}), step=20)
    puppet.end()
    out, err = done.communicate(timeout=30)
    assert (done.returncode, "succeeded" in out) == (0, True), err
    assert "resized" in err


def test_following_ends_with_1_when_the_job_failed_and_says_why(service: LiveService, spec: str) -> None:
    done, puppet = follow(service, spec, "followed-badly")
    puppet.end("failed", cause="user", reason="ValueError: no such column")
    out, _ = done.communicate(timeout=30)
    assert (done.returncode, "no such column" in out) == (1, True)


def follow(service: LiveService, spec: str, name: str) -> tuple[subprocess.Popen[str], Puppet]:
    done = subprocess.Popen(
        command("submit", spec, "--follow", "--set", f"name={name}"),
        env=environment(service),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: bool(service.http.get("/v1/jobs", params={"name": name}).json()["items"]))
    puppet = service.puppet(service.http.get("/v1/jobs", params={"name": name}).json()["items"][0]["id"])
    puppet.beat(step=1)
    return done, puppet


def test_following_survives_a_restart_of_the_service(start: Any, tmp_path: Path, spec: str) -> None:
    first = start(tmp_path / "home")
    done, puppet = follow(first, spec, "patient")
    first.stop()
    second = start(tmp_path / "home", launcher=first.launcher, port=first.port)
    puppet.http = second.http
    wait_until(lambda: puppet.beat(step=20).status_code == 200)
    puppet.end()
    out, err = done.communicate(timeout=30)
    assert (done.returncode, "succeeded" in out) == (0, True), err


def test_logs_are_followed_until_the_job_ends(service: LiveService) -> None:
    job_id, puppet = service.running()
    ending = threading.Timer(1.0, lambda: puppet.end())
    ending.start()
    puppet.beat({"logs": [_line("one"), _line("two\x1b[31m")]})
    done = run(service, "logs", "-f", job_id)
    assert (done.returncode, [line.split()[-1] for line in done.stdout.splitlines()][:1]) == (0, ["one"])
    assert "\x1b[31m" not in done.stdout


def test_a_client_command_loads_nothing_of_the_server() -> None:
    heavy = {"fastapi", "sqlalchemy", "torch", "ray", "uvicorn"}
    code = f"import sys, api.cli.main; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_serve_says_where_it_is_and_ends_cleanly_when_told(tmp_path: Path) -> None:
    env = {**os.environ, "ELASTANE_HOME": str(tmp_path), "ELASTANE_RAY_ADDRESS": "http://127.0.0.1:9"}
    serving = subprocess.Popen(
        command("serve", "--port", "0", "--json"), env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert serving.stdout is not None
    told = json.loads(serving.stdout.readline())
    assert told["home"] == str(tmp_path)
    assert told["url"].startswith("http://127.0.0.1:")
    serving.send_signal(signal.SIGTERM)
    assert serving.wait(30) == 0


def test_an_address_that_is_taken_is_a_sentence(service: LiveService, tmp_path: Path) -> None:
    done = run(service, "serve", "--port", str(service.port), ELASTANE_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_home_in_use_is_a_sentence(service: LiveService) -> None:
    done = run(service, "serve", "--port", "0", ELASTANE_HOME=str(service.settings.home))
    assert done.returncode == 1
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_keys_are_made_listed_and_revoked(start: Any) -> None:
    live = start()
    made = read(live, "keys", "create", "me", "--scope", "admin")
    with_key = {"ELASTANE_API_KEY": made["key"]}
    assert "me" in run(live, "keys", "list", **with_key).stdout
    assert run(live, "jobs").returncode == 1
    assert "may hold 3 slots" in run(live, "keys", "quota", made["id"], "3", **with_key).stdout
    assert run(live, "keys", "quota", made["id"], "few", **with_key).returncode == 2
    assert run(live, "keys", "revoke", made["id"], **with_key).returncode == 0


def test_webhooks_are_made_listed_and_deleted(service: LiveService) -> None:
    made = read(service, "webhooks", "create", "https://hooks.invalid/elastane")
    assert made["secret"].startswith("whsec_")
    listed = run(service, "webhooks", "list").stdout
    assert (made["id"] in listed, made["secret"] in listed) == (True, False)
    assert run(service, "webhooks", "delete", made["id"]).returncode == 0
    assert run(service, "webhooks", "create", "http://127.0.0.1/").returncode == 1


def test_top_shows_slots_and_live_jobs_once_where_no_terminal_reads(service: LiveService) -> None:
    job_id, puppet = service.running(priority=77)
    puppet.beat(samples("loss", {2: 2.5}), step=2)
    done = run(service, "top")
    assert done.returncode == 0, done.stderr
    assert "cpu slots in use" in done.stdout
    (line,) = (line for line in done.stdout.splitlines() if line.startswith(job_id))
    assert "77" in line
    assert "2.5" in line
    assert job_id in {job["id"] for job in read(service, "top")["jobs"]}


@pytest.mark.parametrize("leaves", ["by Ctrl-C", "by closing the terminal"])
def test_top_is_drawn_anew_on_a_terminal_until_one_leaves(service: LiveService, leaves: str) -> None:
    """A real terminal, of which the test holds the other end."""
    # Who starts the tests may have it ignored, and children inherit that.
    handler = signal.default_int_handler if leaves == "by Ctrl-C" else signal.SIG_IGN
    outside = signal.signal(signal.SIGINT, handler)
    ours, theirs = pty.openpty()
    watching = subprocess.Popen(
        command("top", "--every", "0.2"), env=environment(service), stdin=theirs, stdout=theirs, stderr=theirs
    )
    signal.signal(signal.SIGINT, outside)
    os.close(theirs)
    seen = bytearray()
    while seen.count(b"slots in use") < 3:
        seen += os.read(ours, 65536)
    if leaves == "by Ctrl-C":
        watching.send_signal(signal.SIGINT)
        assert watching.wait(10) == 130
    os.close(ours)
    watching.wait(10)


def test_the_doctor_names_what_is_wrong_and_ends_with_1(service: LiveService, start: Any) -> None:
    well = run(service, "doctor")
    assert well.returncode == 0, well.stdout
    assert "slots are free" in well.stdout
    assert read(service, "doctor")["healthy"] is True
    away = run(service, "doctor", ELASTANE_URL="http://127.0.0.1:1")
    assert (away.returncode, "elastane serve" in away.stdout) == (1, True)
    locked = start()
    read(locked, "keys", "create", "me", "--scope", "admin")
    refused = run(locked, "doctor")
    assert (refused.returncode, "set ELASTANE_API_KEY" in refused.stdout) == (1, True)


def test_a_shell_completes_commands_and_job_ids(service: LiveService) -> None:
    job_id = service.submit()["id"]
    shell = {"_ELASTANE_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    program = "from api.cli.main import app; app(prog_name='elastane')"

    def completed(words: str, at: int) -> str:
        env = environment(service, **shell | {"COMP_WORDS": words, "COMP_CWORD": str(at)})
        return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True).stdout

    assert {"doctor", "top"} <= set(completed("elastane ", 1).split())
    assert completed(f"elastane show {job_id[:30]}", 2).split() == [job_id]


def test_a_database_is_upgraded_by_command(tmp_path: Path) -> None:
    done = subprocess.run(
        command("db", "upgrade", "--home", str(tmp_path), "--json"), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["revision"]


def test_a_waiting_job_is_explained_and_moved_forward(service: LiveService, spec: str) -> None:
    service.running()  # one slot of the 1,000 is taken
    job_id = read(service, "submit", spec, "--set", "workers=1000")["id"]
    assert "to start (1000 workers of 1)" in run(service, "explain", job_id).stdout
    assert read(service, "explain", job_id)["needs_slots"] == 1000
    assert read(service, "priority", job_id, "99")["priority"] == 99
    assert run(service, "priority", job_id, "101").returncode == 2
    read(service, "cancel", job_id)
