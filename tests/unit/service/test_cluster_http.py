"""The two ports of a cluster, over HTTP, against canned answers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from service.adapters.cluster import RayCapacity, facts_of
from service.adapters.ray_jobs import RayAddress, RayJobs, dashboard_url
from service.domain.attempt import Liveness
from service.domain.errors import ClusterUnavailable, ErasureFailed, ToolUnavailable
from service.ports import LaunchOrder, Tool

ORDER = LaunchOrder(job_id="j", attempt_id="a", number=2, token="secret", service_url="http://s:1")


def jobs(answer: Callable[[httpx.Request], httpx.Response]) -> RayJobs:
    made = RayJobs("head:6379")
    made.__dict__["_client"] = httpx.AsyncClient(base_url="http://head:8265", transport=httpx.MockTransport(answer))
    return made


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("head:6379", "http://head:8265"),
        ("ray://head:10001", "http://head:8265"),
        ("head", "http://head:8265"),
        ("auto", "http://127.0.0.1:8265"),
        ("https://ray.example/x", "https://ray.example/x"),
    ],
)
def test_the_job_api_is_at_the_dashboard(address: str, url: str) -> None:
    assert dashboard_url(address) == url


async def test_the_connections_to_a_cluster_are_closed_with_the_service() -> None:
    launcher, capacity = jobs(unreachable), RayCapacity("head")
    clients = [launcher._client, capacity._client]
    await RayAddress([launcher.close, capacity.close]).end()
    assert all(client.is_closed for client in clients)
    await launcher.close()


async def test_an_attempt_is_submitted_under_its_own_name_and_the_token_is_no_argument() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(404) if request.method == "GET" else httpx.Response(200, json={})

    await jobs(answer).launch(ORDER)
    body = json.loads(seen[-1].content)
    assert (seen[-1].url.path, body["submission_id"]) == ("/api/jobs/", "elastane-a")
    assert body["entrypoint"] == "python -m workers.controller --service http://s:1 --job j --attempt a"
    assert body["runtime_env"]["env_vars"] == {"ELASTANE_ATTEMPT_TOKEN": "secret"}


async def test_a_store_is_emptied_by_a_submission_that_is_adopted_and_tried_again() -> None:
    said = iter([404, "RUNNING", "FAILED", 404, "SUCCEEDED"])
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        if request.method != "GET":
            return httpx.Response(200, json={})
        now = next(said)
        return httpx.Response(404) if now == 404 else httpx.Response(200, json={"status": now, "message": "denied"})

    launcher = jobs(answer)
    assert not await launcher.erased(uri="s3://b", job_id="j")
    assert not await launcher.erased(uri="s3://b", job_id="j")
    with pytest.raises(ErasureFailed, match="denied"):
        await launcher.erased(uri="s3://b", job_id="j")
    assert not await launcher.erased(uri="s3://b", job_id="j")
    assert await launcher.erased(uri="s3://b", job_id="j")
    assert asked == ["GET", "POST", "GET", "GET", "DELETE", "GET", "POST", "GET"]


@pytest.mark.parametrize("users_code", [True, False])
async def test_what_a_user_wrote_runs_on_a_node_that_offers_cpus(users_code: bool) -> None:
    sent: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            sent.append(json.loads(request.content))
        return httpx.Response(200, json={"status": "SUCCEEDED", "logs": '{"numel": 1}\n'})

    await jobs(answer).run(Tool.DESCRIBE, ["{}"], timeout_s=5, users_code=users_code)
    assert ("entrypoint_num_cpus" in sent[0]) == users_code


async def test_work_on_a_checkpoint_is_a_job_of_rays_own_whose_answer_is_in_its_log() -> None:
    seen: list[tuple[str, str]] = []
    log = 'warning: {not json}\n{\n "step": 3,\n "whole": true\n}\n'

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append((request.method, request.url.path))
        if request.method == "POST":
            body = json.loads(request.content)
            assert shlex.split(body["entrypoint"]) == [
                "python",
                "-m",
                "workers.checkpoint",
                "verify",
                "s3://b/a b",
                "j",
            ]
            return httpx.Response(200, json={})
        found = {"logs": log} if request.url.path.endswith("/logs") else {"status": "SUCCEEDED"}
        return httpx.Response(200, json=found)

    assert await jobs(answer).run(Tool.CHECKPOINT, ["verify", "s3://b/a b", "j"], timeout_s=5) == {
        "step": 3,
        "whole": True,
    }
    assert [method for method, _ in seen] == ["POST", "GET", "GET"]
    log = "Traceback: no module named workers"
    with pytest.raises(ToolUnavailable, match="no module named workers"):
        await jobs(answer).run(Tool.CHECKPOINT, ["verify", "s3://b/a b", "j"], timeout_s=5)


async def test_no_word_of_the_entrypoint_is_read_by_the_shell() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(404) if request.method == "GET" else httpx.Response(200, json={})

    await jobs(answer).launch(replace(ORDER, service_url="http://s:1/$(id); x"))
    words = shlex.split(json.loads(seen[-1].content)["entrypoint"])
    assert words[3:] == ["--service", "http://s:1/$(id); x", "--job", "j", "--attempt", "a"]


async def test_an_attempt_that_was_submitted_before_is_adopted() -> None:
    posts: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            posts.append(request.url.path)
            return httpx.Response(500, text="already exists")
        return httpx.Response(200, json={"status": "RUNNING"}) if posts else httpx.Response(404)

    made = jobs(answer)
    await made.launch(ORDER)
    await made.launch(ORDER)
    assert len(posts) == 1


@pytest.mark.parametrize(
    ("answer", "liveness"),
    [
        (httpx.Response(200, json={"status": "PENDING"}), Liveness.ALIVE),
        (httpx.Response(200, json={"status": "RUNNING"}), Liveness.ALIVE),
        (httpx.Response(200, json={"status": "FAILED"}), Liveness.GONE),
        (httpx.Response(200, json={"status": "STOPPED"}), Liveness.GONE),
        (httpx.Response(404), Liveness.GONE),
        (httpx.Response(500), Liveness.UNKNOWN),
        (httpx.Response(401), Liveness.UNKNOWN),
        (httpx.Response(200, text="<html>a proxy</html>"), Liveness.UNKNOWN),
        (httpx.Response(200, json=None), Liveness.UNKNOWN),
        (httpx.Response(200, json={"status": "new to us"}), Liveness.UNKNOWN),
    ],
)
async def test_only_a_clear_answer_says_that_a_controller_is_gone(answer: httpx.Response, liveness: Liveness) -> None:
    assert await jobs(lambda request: answer).liveness("a") is liveness


def unreachable(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused")


async def test_a_cluster_that_does_not_answer_leaves_everything_unknown() -> None:
    made = jobs(unreachable)
    assert await made.liveness("a") is Liveness.UNKNOWN
    with pytest.raises(ClusterUnavailable):
        await made.launch(ORDER)


def test_gpus_are_the_slots_of_a_cluster_that_has_any() -> None:
    rows = [
        {"node_id": "h", "node_ip": "10.0.0.1", "state": "ALIVE", "resources_total": {"CPU": 8, "memory": 5}},
        {
            "node_id": "g",
            "node_ip": "10.0.0.2",
            "state": "ALIVE",
            "resources_total": {"CPU": 32, "GPU": 4, "accelerator_type:H100": 1},
        },
        {"node_id": "d", "node_ip": "10.0.0.3", "state": "DEAD", "resources_total": {"GPU": 4}},
    ]
    rows.append({"node_id": "n", "state": "DEAD", "resources_total": None})
    facts = facts_of(rows, address="head")
    assert (facts.slot_kind, facts.slots, [node.slots for node in facts.nodes]) == ("gpu", 4, [0, 4, 4, 0])
    assert (facts.nodes[1].accelerator, facts.nodes[1].accelerator_memory_bytes) == ("H100", 80 * 10**9)
    assert facts_of(rows[:1], address="head").slot_kind == "cpu"
    assert facts_of(rows[:1], address="head").slots == 8
    empty = facts_of(rows[:1], address="head", slot_kind="gpu")
    assert (empty.slot_kind, empty.slots) == ("gpu", 0), "a pool that has no node yet"


async def test_a_cluster_view_that_cannot_be_read_is_unavailable() -> None:
    made = RayCapacity("head")
    bodies: tuple[object, ...] = ({"data": {}}, {"data": None}, None, {"data": {"result": {"result": [None]}}})
    answers = [httpx.Response(200, json=body) for body in bodies]
    for answer in (unreachable, *(lambda request, canned=canned: canned for canned in answers)):
        made.__dict__["_client"] = httpx.AsyncClient(base_url="http://h", transport=httpx.MockTransport(answer))
        with pytest.raises(ClusterUnavailable):
            await made.facts()
