"""Lists: newest first, a page at a time, nothing twice and nothing left out."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.api.live import LiveService


def walk(service: LiveService, between: Any = None, **query: Any) -> list[str]:
    """All ids, page by page; `between` runs after the first page."""
    ids: list[str] = []
    cursor = None
    while True:
        page = service.http.get("/v1/jobs", params=query | ({"cursor": cursor} if cursor else {})).json()
        ids += [job["id"] for job in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return ids
        if between is not None:
            between()
            between = None


def test_every_job_is_on_exactly_one_page_newest_first(service: LiveService) -> None:
    name = f"page-{uuid.uuid4().hex[:8]}"
    made = [service.submit(name=name)["id"] for _ in range(7)]
    assert walk(service, name=name, limit=3) == made[::-1]


def test_a_job_that_arrives_between_two_pages_moves_none_of_the_others(service: LiveService) -> None:
    name = f"page-{uuid.uuid4().hex[:8]}"
    made = [service.submit(name=name)["id"] for _ in range(4)]
    assert walk(service, between=lambda: service.submit(name=name), name=name, limit=2) == made[::-1]


def test_a_list_of_one_state_has_no_other(service: LiveService) -> None:
    job_id = service.submit(workers=4000)["id"]
    service.http.post(f"/v1/jobs/{job_id}/cancel")
    items = service.http.get("/v1/jobs", params={"state": "cancelled"}).json()["items"]
    assert job_id in {job["id"] for job in items}
    assert {job["state"] for job in items} == {"cancelled"}


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "limit=x", "state=nope", "cursor=%00", "cursor=nope", "sort=name", "name=A%20B"]
)
def test_a_query_that_means_nothing_is_refused_not_ignored(service: LiveService, query: str) -> None:
    answer = service.http.get(f"/v1/jobs?{query}")
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
