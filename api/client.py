"""The Python client: the REST API, synchronous, with retries only where a repeat cannot do a second thing.

ApiError
├── Refused       the service answered with a problem (RFC 9457)
└── Unreachable   no answer came, although it was asked for as often as is safe
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

Json = dict[str, Any]

ENDED = frozenset({"succeeded", "failed", "cancelled"})
# Of calls that read or write a whole checkpoint.
PATIENT = httpx.Timeout(10.0, read=3600.0)
DEFAULT_URL = "http://127.0.0.1:8000"


class ApiError(Exception):
    """What a call to the service may raise."""


class Refused(ApiError):
    """The service refused; `problem` is its whole RFC 9457 document."""

    def __init__(self, problem: Json) -> None:
        self.problem = problem
        self.status: int = int(problem.get("status", 0))
        super().__init__(f"{problem.get('title', 'refused')}: {problem.get('detail', '')}")

    def __reduce__(self) -> tuple[type[Refused], tuple[Json]]:
        return Refused, (self.problem,)


class Unreachable(ApiError):
    """No answer. Whether a submission arrived is settled by sending it again with the same Idempotency-Key."""

    def __init__(self, url: str, cause: str) -> None:
        self.url = url
        self.cause = cause
        super().__init__(f"no answer from {url} ({cause}); is `elastane serve` running, and is ELASTANE_URL right?")

    def __reduce__(self) -> tuple[type[Unreachable], tuple[str, str]]:
        return Unreachable, (self.url, self.cause)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Waits double from `first_wait_s`, with jitter, up to `longest_wait_s`; `Retry-After` is obeyed."""

    attempts: int = 4
    first_wait_s: float = 0.2
    longest_wait_s: float = 5.0

    def wait_s(self, attempt: int, *, asked_s: float | None) -> float:
        backoff_s = min(self.longest_wait_s, self.first_wait_s * 2.0**attempt)
        return asked_s if asked_s is not None else backoff_s * random.uniform(0.5, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One server-sent event: `event` is event, sample, state or resync; `id` is the cursor to resume after."""

    id: str | None
    event: str
    data: Json


class ElastaneClient:
    """`with ElastaneClient("http://127.0.0.1:8000") as client: client.submit({"model": "gpt-tiny"})`."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._retry = retry or RetryPolicy()
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # ---- jobs ------------------------------------------------------------------------------------------------------

    def submit(self, spec: Mapping[str, Any], *, idempotency_key: str | None = None) -> Json:
        """The job. A key of its own makes the call safe to repeat when an answer is lost."""
        headers = {"idempotency-key": idempotency_key or uuid.uuid4().hex}
        return self._json("POST", "/v1/jobs", body=dict(spec), headers=headers, repeatable=True)

    def dry_run(self, spec: Mapping[str, Any]) -> Json:
        """Validates and plans only."""
        return self._json("POST", "/v1/jobs", params={"dry_run": "true"}, body=dict(spec), repeatable=True)

    def plan(self, spec: Mapping[str, Any]) -> Json:
        return self._json("POST", "/v1/plan", body=dict(spec), repeatable=True)

    def import_config(self, config: Mapping[str, Any], spec: Mapping[str, Any], *, of: str = "ds_config") -> Json:
        """`{"spec": ..., "report": [...]}`: the configuration in the fields of the spec; refused keys are reported.
        of: ds_config, DeepSpeed's, or fsdp_config."""
        body = {of: dict(config), "spec": dict(spec)}
        return self._json("POST", "/v1/import-ds", body=body, repeatable=True)

    def jobs(
        self, *, state: str | None = None, name: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Json:
        """One page, newest first: `{"items": [...], "next_cursor": ...}`."""
        return self._json("GET", "/v1/jobs", params={"state": state, "name": name, "limit": limit, "cursor": cursor})

    def job(self, job_id: str) -> Json:
        return self._json("GET", _job(job_id))

    def scale(
        self, job_id: str, workers: int | Mapping[str, int], *, stage: int | None = None, offload: object = None
    ) -> Json:
        body: Json = {"workers": workers if isinstance(workers, int) else dict(workers)}
        body |= {name: value for name, value in (("stage", stage), ("offload", offload)) if value is not None}
        return self._json("POST", _job(job_id, "scale"), body=body)

    def prioritise(self, job_id: str, priority: int) -> Json:
        return self._json("POST", _job(job_id, "priority"), body={"priority": priority}, repeatable=True)

    def explain(self, job_id: str) -> Json:
        """Why it waits, or has the workers it has."""
        return self._json("GET", _job(job_id, "explain"))

    def pause(self, job_id: str) -> Json:
        return self._json("POST", _job(job_id, "pause"))

    def resume(self, job_id: str) -> Json:
        return self._json("POST", _job(job_id, "resume"))

    def cancel(self, job_id: str) -> Json:
        return self._json("POST", _job(job_id, "cancel"))

    def delete(self, job_id: str) -> None:
        self._request("DELETE", _job(job_id))

    # ---- what a job left behind ------------------------------------------------------------------------------------

    def events(self, job_id: str, *, after: str | int | None = None, limit: int | None = None) -> Json:
        return self._json("GET", _job(job_id, "events"), params={"after": after, "limit": limit})

    def workers(self, job_id: str) -> Json:
        return self._json("GET", _job(job_id, "workers"))

    def metrics(
        self,
        job_id: str,
        *,
        names: str | None = None,
        points: int | None = None,
        from_step: int | None = None,
        to_step: int | None = None,
    ) -> Json:
        params = {"names": names, "points": points, "from_step": from_step, "to_step": to_step}
        return self._json("GET", _job(job_id, "metrics"), params=params)

    def logs(
        self, job_id: str, *, rank: int | None = None, after: str | int | None = None, limit: int | None = None
    ) -> Json:
        return self._json("GET", _job(job_id, "logs"), params={"rank": rank, "after": after, "limit": limit})

    def checkpoints(self, job_id: str) -> Json:
        return self._json("GET", _job(job_id, "checkpoints"))

    def checkpoint(self, job_id: str) -> Json:
        """Asks for a checkpoint now."""
        return self._json("POST", _job(job_id, "checkpoints"))

    def pin(self, job_id: str, step: int, *, pinned: bool = True) -> Json:
        return self._json("POST", _checkpoint(job_id, step, "pin" if pinned else "unpin"), repeatable=True)

    def verify(self, job_id: str, step: int) -> Json:
        """Returns when every byte was read."""
        return self._json("POST", _checkpoint(job_id, step, "verify"), timeout=PATIENT)

    def export(
        self,
        job_id: str,
        step: int,
        *,
        to: str,
        format: str = "safetensors",
        dtype: str = "float32",
        average: bool = False,
    ) -> Json:
        """Returns when the folder `to`, an absolute path where workers run, is written."""
        body = {"to": to, "format": format, "dtype": dtype, "average": average}
        return self._json("POST", _checkpoint(job_id, step, "export"), body=body, timeout=PATIENT)

    def delete_checkpoint(self, job_id: str, step: int) -> None:
        self._request("DELETE", _checkpoint(job_id, step), repeatable=False, timeout=PATIENT)

    # ---- the service -----------------------------------------------------------------------------------------------

    def cluster(self) -> Json:
        return self._json("GET", "/v1/cluster")

    def readiness(self) -> Json:
        """`{"ready": ..., "checks": {...}}`, also of a service that is not ready."""
        try:
            response = self._http.get("/readyz")
            document = response.json()
        except (httpx.TransportError, ValueError) as error:
            raise Unreachable(self.url, _sentence(error)) from error
        return dict(document) if "checks" in document else _accepted(response).json()

    def version(self) -> str:
        return str(self._json("GET", "/openapi.json")["info"]["version"])

    def session(self) -> Json:
        """Who the key is, and whether one is asked for."""
        return self._json("GET", "/v1/session")

    def keys(self) -> Json:
        return self._json("GET", "/v1/keys")

    def create_key(self, *, name: str, scopes: list[str], quota_slots: int | None = None) -> Json:
        return self._json("POST", "/v1/keys", body={"name": name, "scopes": scopes, "quota_slots": quota_slots})

    def limit_key(self, key_id: str, slots: int | None) -> Json:
        path = f"/v1/keys/{quote(key_id, safe='')}/quota"
        return self._json("POST", path, body={"slots": slots}, repeatable=True)

    def revoke_key(self, key_id: str) -> None:
        self._request("DELETE", f"/v1/keys/{quote(key_id, safe='')}")

    def webhooks(self) -> Json:
        return self._json("GET", "/v1/webhooks")

    def create_webhook(self, url: str) -> Json:
        return self._json("POST", "/v1/webhooks", body={"url": url})

    def delete_webhook(self, webhook_id: str) -> None:
        self._request("DELETE", f"/v1/webhooks/{quote(webhook_id, safe='')}")

    def stream(self, job_id: str | None = None, *, last_event_id: str | None = None) -> Iterator[Notice]:
        """Notices from the cursor on, without gap or duplicate over reconnections, until the caller stops reading."""
        path = "/v1/stream" if job_id is None else _job(job_id, "stream")
        cursor, failures = last_event_id, 0
        while True:
            try:
                for notice in self._stream_once(path, cursor):
                    failures, cursor = 0, notice.id or cursor
                    yield notice
            except httpx.TransportError as lost:
                failures += 1
                if failures >= self._retry.attempts:
                    raise Unreachable(self.url, _sentence(lost)) from lost
            time.sleep(self._retry.wait_s(failures, asked_s=None))

    # ---- one call --------------------------------------------------------------------------------------------------

    def _stream_once(self, path: str, cursor: str | None) -> Iterator[Notice]:
        headers = {"accept": "text/event-stream"} | ({"last-event-id": cursor} if cursor else {})
        # The service pings every 15 s: silence of twice that is a lost connection.
        timeout = httpx.Timeout(10.0, read=30.0)
        with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
            if response.is_error:
                response.read()
                raise Refused(_problem(response))
            yield from parse_events(response.iter_lines())

    def _json(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, object] | None = None,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
        timeout: httpx.Timeout | None = None,
    ) -> Json:
        query = {name: str(value) for name, value in (params or {}).items() if value is not None}
        content: Json = {"params": query, "json": body, "headers": dict(headers or {})}
        if timeout is not None:
            content["timeout"] = timeout
        response = self._request(method, path, **content, repeatable=repeatable)
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Unreachable(self.url, "what answers there is not Elastane")
        return answer

    def _request(self, method: str, path: str, *, repeatable: bool | None = None, **content: Any) -> httpx.Response:
        """Sends; a GET, or what is said to be repeatable, again on a lost answer; anything again when it never left or
        came too often."""
        safe = method == "GET" if repeatable is None else repeatable
        for attempt in range(self._retry.attempts):
            last = attempt + 1 == self._retry.attempts
            asked_s = None
            try:
                response = self._http.request(method, path, **content)
            except httpx.TransportError as lost:
                never_left = isinstance(lost, httpx.ConnectError | httpx.ConnectTimeout)
                if last or not (safe or never_left):
                    raise Unreachable(self.url, _sentence(lost)) from lost
            else:
                # 429: it was not looked at.
                again = response.status_code == 429 or (safe and response.status_code in (502, 503, 504))
                if last or not again:
                    return _accepted(response)
                asked_s = _retry_after_s(response)
            time.sleep(self._retry.wait_s(attempt, asked_s=asked_s))
        raise AssertionError("the last attempt returns or raises")


def parse_events(lines: Iterator[str]) -> Iterator[Notice]:
    """Server-sent events out of lines; comments (pings) are dropped, `data` is JSON."""
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
        elif "data" in fields:
            yield Notice(id=fields.get("id"), event=fields.get("event", "message"), data=json.loads(fields["data"]))
            fields = {}
        else:
            fields = {}


def _job(job_id: str, part: str = "") -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}" + (f"/{part}" if part else "")


def _checkpoint(job_id: str, step: int, part: str = "") -> str:
    return _job(job_id, f"checkpoints/{step}" + (f"/{part}" if part else ""))


def _accepted(response: httpx.Response) -> httpx.Response:
    if response.is_error:
        raise Refused(_problem(response))
    return response


def _problem(response: httpx.Response) -> Json:
    try:
        document = response.json()
    except ValueError:
        document = None
    if isinstance(document, dict) and "title" in document:
        return document
    return {"title": response.reason_phrase, "status": response.status_code, "detail": response.text[:500]}


def _retry_after_s(response: httpx.Response) -> float | None:
    asked = response.headers.get("retry-after", "")
    return min(float(asked), 30.0) if asked.isdigit() else None


def _sentence(error: Exception) -> str:
    return str(error) or type(error).__name__
