"""How one heartbeat travels to the service, and what its answers mean."""

from __future__ import annotations

from typing import Protocol

import httpx

from service.domain.wire import Brief, Heartbeat, Orders

TIMEOUT = httpx.Timeout(10.0, connect=3.0)


class Superseded(Exception):
    """The service gave this job to another attempt, or ended it: stop the workers and leave."""


class Refused(Exception):
    """The service answered, and would answer the same again: `status` 400 to 499."""

    def __init__(self, status: int, text: str) -> None:
        self.status, self.text = status, text
        super().__init__(status, text)

    def __str__(self) -> str:
        return f"the service refused with status {self.status}: {self.text}"


class Transport(Protocol):
    """Carries one heartbeat. Raises Superseded, Refused, or OSError or ValueError where trying again may help."""

    def post(self, heartbeat: Heartbeat) -> Orders: ...


class HttpTransport:
    def __init__(self, *, service_url: str, attempt_id: str, token: str) -> None:
        self._path = f"/internal/v1/attempts/{attempt_id}"
        self._client = httpx.Client(
            base_url=service_url, timeout=TIMEOUT, headers={"authorization": f"Bearer {token}"}, trust_env=False
        )

    def brief(self) -> Brief:
        return Brief.model_validate_json(self._send("GET", self._path, None))

    def post(self, heartbeat: Heartbeat) -> Orders:
        body = heartbeat.model_dump_json(exclude_none=True).encode()
        return Orders.model_validate_json(self._send("POST", f"{self._path}/heartbeat", body))

    def _send(self, method: str, path: str, body: bytes | None) -> bytes:
        headers = {"content-type": "application/json"}
        try:
            response = self._client.request(method, path, content=body, headers=headers)
        except httpx.HTTPError as error:
            raise ConnectionError(f"{method} {path}: {error!r}") from error
        status, text = response.status_code, f"{method} {path}: {response.text[:300]}"
        if status in (409, 410):
            raise Superseded(f"{status} {text}")
        # 408 and 429 ask for patience.
        if 400 <= status < 500 and status not in (408, 429):
            raise Refused(status, text)
        if status != 200:
            raise ConnectionError(f"{status} {text}")
        return response.content
