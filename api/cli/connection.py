"""Which service a command talks to, and how its outcome becomes an exit status."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Annotated

import typer

from api.client import DEFAULT_URL, ApiError, ElastaneClient, RetryPolicy

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, nothing else.")]


def _job_ids(incomplete: str) -> list[tuple[str, str]]:
    """For a shell that completes: ids with names. Whatever goes wrong, a key press gets no error."""
    url, key = os.environ.get("ELASTANE_URL", DEFAULT_URL), os.environ.get("ELASTANE_API_KEY")
    try:
        with ElastaneClient(url, api_key=key, timeout_s=1.0, retry=RetryPolicy(attempts=1)) as client:
            found = client.jobs(limit=200)["items"]
    except ApiError:
        return []
    return [(job["id"], f"{job['name'] or ''} {job['state']}") for job in found if job["id"].startswith(incomplete)]


JobId = Annotated[
    str,
    typer.Argument(metavar="ID", help="The job's id, as `elastane jobs` prints it.", autocompletion=_job_ids),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Parsed once by the root command from its options or ELASTANE_URL and ELASTANE_API_KEY."""

    url: str
    api_key: str | None

    def client(self) -> ElastaneClient:
        return ElastaneClient(self.url, api_key=self.api_key)


def client_of(context: typer.Context) -> ElastaneClient:
    connection = context.find_object(Connection)
    if connection is None:
        raise RuntimeError("the root command sets the connection before any other command runs")
    return connection.client()


def workers_argument(text: str) -> int | dict[str, int]:
    """`3` or `1:4`."""
    low, colon, high = text.partition(":")
    try:
        return {"min": int(low), "max": int(high)} if colon else int(low)
    except ValueError as error:
        raise typer.BadParameter(f"{json.dumps(text)}: say a number of workers (3) or bounds (1:4)") from error
