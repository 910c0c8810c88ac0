"""A job with a folder, a package, a variable and a secret of its own; the secret is printed, and is nowhere."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import httpx

from api.client import ElastaneClient
from examples.local_service import LocalService
from tests.e2e import journey
from tests.fakes.wheel import wheel

# Prints at every border that a secret may cross: a print, a line without an end, a warning, a log, a traceback.
MODULE = """
import logging, os, sys, warnings
import torch
import brought_along

class Telling(torch.nn.Linear):
    steps = 0

    def forward(self, batch):
        self.steps += 1
        if self.steps == 3:
            raise PermissionError(f"{os.environ['TOKEN']} is not welcome in {os.environ['PLACE']}")
        return super().forward(batch).square().mean()

def build():
    token = os.environ["TOKEN"]
    print("package", brought_along.VERSION, "and", open("note.txt").read(), "with", token)
    print({"authorization": token}, file=sys.stderr)
    warnings.warn(token)
    logging.getLogger("mine").error("refused %s", token)
    return Telling(4, 1)

def data():
    return [torch.ones(4) * i for i in range(64)]
"""


def traces(secret: str, service: LocalService) -> Iterator[Path]:
    """Files of the service and of Ray that hold it, the operator's own aside."""
    logs_of_ray = (path for folder in Path("/tmp").glob("elr-*/session_*/logs") for path in folder.rglob("*"))
    for path in (*service.home.rglob("*"), *logs_of_ray):
        if path.is_file() and path.parent.name != "secrets" and secret.encode() in path.read_bytes():
            yield path


def test_a_secret_reaches_the_users_code_and_nothing_else(
    service: LocalService, client: ElastaneClient, tmp_path: Path
) -> None:
    secret = f"tell-nobody-{secrets.token_hex(8)}"
    (service.home / "secrets").mkdir(mode=0o700)
    (service.home / "secrets" / "of-the-test").write_text(f"{secret}\n")
    (tmp_path / "telling.py").write_text(MODULE)
    (tmp_path / "note.txt").write_text("a note")
    brought = wheel(tmp_path, "brought_along", version="1.7")
    document = {
        "model": {"python": "telling:build"},
        "data": {"python": "telling:data"},
        "precision": "fp32",
        "workers": 1,
        "training": {"steps": 5, "batch_size": 4, "micro_batch_size": 4},
        "environment": {
            "working_dir": str(tmp_path),
            "pip": [f"./{brought.name}"],
            "variables": {"PLACE": "a-variable"},
            "secrets": {"TOKEN": "of-the-test"},
        },
    }
    # Planning describes the model, in a process that enters the same environment.
    plan = httpx.post(f"{service.url}/v1/plan", json=document, timeout=120).raise_for_status()
    job_id = client.submit(document)["id"]
    job = journey.wait_until(client, job_id, "the end", lambda job: job["state"] == "failed", timeout_s=120)
    assert job["step"] == 2
    assert job["reason"].startswith("PermissionError: *** is not welcome in a-variable (")

    paths = ("", "/events?limit=1000", "/logs", "/workers", "/explain", "/metrics")
    answers = {path: httpx.get(f"{service.url}/v1/jobs/{job_id}{path}").raise_for_status().text for path in paths}
    answers |= {"plan": plan.text, "metrics": httpx.get(f"{service.url}/metrics").text}
    lines = [line["text"] for line in httpx.get(f"{service.url}/v1/jobs/{job_id}/logs").json()["items"]]
    assert "package 1.7 and a note with ***" in lines
    assert "{'authorization': '***'}" in lines
    assert any("refused ***" in line for line in lines)
    assert job["spec"]["environment"]["secrets"] == {"TOKEN": "of-the-test"}
    assert [name for name, text in answers.items() if secret in text] == []
    assert list(traces(secret, service)) == []
    assert list(traces("package 1.7 and a note with ***", service)), "nothing was looked at"
