"""Pages and numbers: what people, supervisors and Prometheus read."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

from tests.api.live import LiveService


def test_a_service_that_can_work_is_ready_and_says_what_it_checked(service: LiveService) -> None:
    answer = service.http.get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["ready"]
    assert {"database", "reconciler"} <= answer.json()["checks"].keys()


def test_prometheus_reads_counts_by_route_and_never_an_id(service: LiveService) -> None:
    job_id = service.submit()["id"]
    service.job(job_id)
    service.http.get("/no/such/thing")
    service.http.request("BREW", "/v1/jobs")
    text = service.http.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    routes = {sample.labels["route"] for sample in families["elastane_http_requests"].samples}
    assert {"/v1/jobs/{job_id}", "unmatched"} <= routes
    assert job_id not in text
    assert "BREW" not in text
    assert {sample.labels["state"] for sample in families["elastane_jobs"].samples} >= {"queued", "running"}


def test_the_front_page_needs_nothing_from_another_origin(service: LiveService) -> None:
    page = service.http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", page.text)


def test_the_documentation_lists_every_path_without_a_script(service: LiveService) -> None:
    page = service.http.get("/docs").text
    assert "<script" not in page
    for path in service.http.get("/openapi.json").json()["paths"]:
        assert path.replace("{", "&#123;") in page or path in page


def test_the_style_of_the_documentation_is_served(service: LiveService) -> None:
    assert service.http.get("/docs.css").headers["content-type"].startswith("text/css")


def test_the_document_says_how_every_path_refuses(service: LiveService) -> None:
    document = service.http.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            refusals = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
            assert refusals, f"{method} {path} never refuses"
            for status, answer in refusals.items():
                if (path, status) != ("/readyz", "503"):
                    assert list(answer["content"]) == ["application/problem+json"], f"{method} {path} {status}"


def test_every_shape_that_the_document_names_is_in_it(service: LiveService) -> None:
    text = service.http.get("/openapi.json").text
    shapes = service.http.get("/openapi.json").json()["components"]["schemas"]
    assert set(re.findall(r'"#/components/schemas/([^"]+)"', text)) <= shapes.keys()


def test_a_spec_s_short_forms_are_in_the_schema(service: LiveService) -> None:
    schema = service.http.get("/openapi.json").json()["components"]["schemas"]["JobSpecDocument"]
    assert any(form.get("type") == "integer" for form in schema["properties"]["workers"]["anyOf"])


def test_the_cluster_says_who_holds_its_slots(service: LiveService) -> None:
    job_id, _ = service.running()
    view = service.http.get("/v1/cluster").json()
    assert view["slots"] == 1000
    (use,) = [use for use in view["used"] if use["job_id"] == job_id]
    assert use["members"] == service.http.get(f"/v1/jobs/{job_id}/workers").json()["items"] != []


def test_a_plan_names_every_stage_and_one_recommendation(service: LiveService) -> None:
    plan = service.http.post("/v1/plan", json={"model": "gpt-small", "workers": 4}).json()
    assert {choice["stage"] for choice in plan["choices"]} == {0, 1, 2, 3}
    assert plan["recommendation"]["why"]
