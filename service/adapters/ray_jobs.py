"""Controllers on a cluster, submitted through Ray's job API; a submission's id is the attempt's."""

from __future__ import annotations

import asyncio
import itertools
import shlex
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import httpx

from service.adapters.tool_answer import answer_in
from service.domain.attempt import Liveness
from service.domain.errors import ClusterUnavailable, ErasureFailed, ToolUnavailable
from service.ports import LaunchOrder, Tool
from service.settings import ray_token

TIMEOUT_S = 20.0
LOOK_EVERY_S = 1.0
# Of a CPU: as little as Ray counts, and more than a node has that offers none.
SLIVER = 0.001
_LIVENESS = {
    "PENDING": Liveness.ALIVE,
    "RUNNING": Liveness.ALIVE,
    "SUCCEEDED": Liveness.GONE,
    "FAILED": Liveness.GONE,
    "STOPPED": Liveness.GONE,
}


class RayAddress:
    """The port `RayHost` for a cluster that others run: controllers run inside it and find it by themselves."""

    embedded = False

    def __init__(self, close: Sequence[Callable[[], Awaitable[None]]]) -> None:
        self._close = close

    def begin(self) -> None:
        """Nothing to start."""

    async def ensure(self) -> str:
        return "auto"

    def trouble(self) -> str | None:
        return None

    async def end(self) -> None:
        """Ray is not ours to end, the connections to it are."""
        for close in self._close:
            await close()


class RayJobs:
    """The port `Launcher` over HTTP: importing Ray would cost this process seconds and hundreds of megabytes."""

    def __init__(self, address: str) -> None:
        self._url = dashboard_url(address)

    @cached_property
    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self._url, timeout=TIMEOUT_S, headers=auth_headers(), trust_env=False)

    async def close(self) -> None:
        client = self.__dict__.pop("_client", None)
        if client is not None:
            await client.aclose()

    async def launch(self, order: LaunchOrder) -> None:
        if await self.liveness(order.attempt_id) is Liveness.ALIVE:
            return
        arguments = ["--service", order.service_url, "--job", order.job_id, "--attempt", order.attempt_id]
        body = {
            "submission_id": submission_id(order.attempt_id),
            # Ray gives it to a shell.
            "entrypoint": shlex.join(["python", "-m", "workers.controller", *arguments]),
            "runtime_env": {"env_vars": {"ELASTANE_ATTEMPT_TOKEN": order.token}},
            "metadata": {"job": order.job_id, "attempt": str(order.number)},
        }
        response = await self._send("POST", "/api/jobs/", body)
        if response.status_code >= 400 and await self.liveness(order.attempt_id) is not Liveness.ALIVE:
            raise ClusterUnavailable(f"submission answered {response.status_code}: {response.text[-300:]}")

    async def run(
        self, tool: Tool, arguments: Sequence[str], *, timeout_s: float, users_code: bool = False
    ) -> Mapping[str, Any]:
        """As a job of Ray's own, whose output is its log."""
        name = f"elastane-tool-{uuid.uuid4().hex}"
        body: dict[str, Any] = {"submission_id": name, "entrypoint": shlex.join(["python", "-m", tool, *arguments])}
        if users_code:
            # The head, which offers no CPU, may have rights over the cluster that code of a user's must not have.
            body["entrypoint_num_cpus"] = SLIVER
        response = await self._send("POST", "/api/jobs/", body)
        if response.status_code >= 400:
            raise ToolUnavailable(f"submission answered {response.status_code}: {response.text[-300:]}")
        try:
            async with asyncio.timeout(timeout_s):
                await self._end_of(name)
        except TimeoutError:
            await self._send("POST", f"/api/jobs/{name}/stop", None)
            raise ToolUnavailable(f"it took longer than {timeout_s:.0f} s and was ended") from None
        logs = await self._send("GET", f"/api/jobs/{name}/logs", None)
        return answer_in(str(logs.json().get("logs", "")) if logs.status_code == 200 else logs.text)

    async def _end_of(self, name: str) -> None:
        for _ in itertools.count():
            found = _status(await self._send("GET", f"/api/jobs/{name}", None))
            if _LIVENESS.get(found) is not Liveness.ALIVE:
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def liveness(self, attempt_id: str) -> Liveness:
        try:
            response = await self._send("GET", f"/api/jobs/{submission_id(attempt_id)}", None)
            if response.status_code == 404:
                return Liveness.GONE
            return _LIVENESS.get(_status(response), Liveness.UNKNOWN)
        except ClusterUnavailable:
            return Liveness.UNKNOWN

    async def end(self, attempt_id: str, *, force: bool) -> None:
        """Ray sends SIGTERM and, some seconds later, SIGKILL by itself."""
        await self._send("POST", f"/api/jobs/{submission_id(attempt_id)}/stop", None)

    async def erased(self, *, uri: str, job_id: str) -> bool:
        path = f"/api/jobs/{submission_id(f'erase-{job_id}')}"
        response = await self._send("GET", path, None)
        if response.status_code == 404:
            body = {
                "submission_id": submission_id(f"erase-{job_id}"),
                "entrypoint": shlex.join(["python", "-m", "workers.checkpoint", "erase", uri, job_id]),
                "metadata": {"job": job_id},
            }
            await self._send("POST", "/api/jobs/", body)
            return False
        status = _status(response)
        if status in ("FAILED", "STOPPED"):
            # A submission's name can be used again only when it was deleted.
            await self._send("DELETE", path, None)
            raise ErasureFailed(uri=uri, cause=f"Ray says {status}: {str(response.json().get('message'))[-300:]}")
        return status == "SUCCEEDED"

    async def _send(self, method: str, path: str, body: object) -> httpx.Response:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._client.request(method, path, json=body)
        except (httpx.HTTPError, TimeoutError) as error:
            raise ClusterUnavailable(f"{method} {path}: {error!r}") from error


def _status(response: httpx.Response) -> str:
    """What Ray says of a submission. Raises ClusterUnavailable for what is no answer of Ray's."""
    if response.status_code != 200:
        raise ClusterUnavailable(f"{response.url.path} answered {response.status_code}")
    try:
        return str(response.json()["status"])
    except (ValueError, KeyError, TypeError) as error:
        raise ClusterUnavailable(f"{response.url.path} answered {response.text[:100]!r}") from error


def submission_id(attempt_id: str) -> str:
    return f"elastane-{attempt_id}"


def dashboard_url(address: str) -> str:
    """Ray's job API is at its dashboard: http://HOST:8265 unless the address already says a URL."""
    if address.startswith(("http://", "https://")):
        return address
    if address in ("auto", "local"):
        return "http://127.0.0.1:8265"
    host = address.removeprefix("ray://").rsplit(":", 1)[0] if ":" in address else address
    return f"http://{host}:8265"


def auth_headers() -> dict[str, str]:
    token = ray_token()
    return {"Authorization": f"Bearer {token}"} if token else {}
