"""Every name that a rule or a panel asks for is one that /metrics has, with the labels it is asked by."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from api.telemetry import Telemetry
from service.attempts import COUNTED
from service.census import Numbers
from service.domain.job import JobState
from tests.deploy.kustomize import KUBERNETES, build, named

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboards" / "elastane.json").read_text())
SELECTOR = re.compile(r"(elastane_\w+)(?:\{([^}]*)\})?")


def exposed() -> dict[str, list[dict[str, str]]]:
    """name -> the label sets that /metrics has after some traffic."""
    telemetry = Telemetry()
    telemetry.answered(method="GET", route="/v1/jobs", status=200, seconds=0.1)
    numbers = Numbers(
        jobs=dict.fromkeys(JobState, 1),
        attempts=1,
        workers_desired=2,
        workers_actual=1,
        newest_notice=5,
        still_s=1.0,
        measured_over_predicted=1.0,
        events=dict.fromkeys(COUNTED, 1),
        disks={"home": (1, 2)},
    )
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(telemetry.exposition(numbers).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def expressions() -> Iterator[tuple[str, str]]:
    for group in RULES["groups"]:
        yield from ((rule["alert"], rule["expr"]) for rule in group["rules"])
    for panel in DASHBOARD["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])


@pytest.mark.parametrize(("what", "expression"), [*expressions()])
def test_what_is_asked_for_is_there(what: str, expression: str) -> None:
    known = exposed()
    asked = SELECTOR.findall(expression)
    assert asked or "up{" in expression
    for name, matchers in asked:
        assert name in known, f"{what} asks for {name}"
        for label, operator, value in re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', matchers):
            values = {labels.get(label) for labels in known[name]}
            assert values != {None}, f"{what}: {name} has no label {label}"
            assert operator != "=" or value in values, f"{what}: {name} never has {label}={value}"


@pytest.mark.parametrize(("what", "expression"), [*expressions()])
def test_what_a_sum_is_split_by_is_a_label(what: str, expression: str) -> None:
    labels = {label for sets in exposed().values() for each in sets for label in each}
    for split in re.findall(r"by \(([^)]*)\)", expression):
        assert {label.strip() for label in split.split(",")} <= labels, what


def test_what_an_operator_must_know_has_a_rule_that_says_what_to_do() -> None:
    rules = [rule for group in RULES["groups"] for rule in group["rules"]]
    names = {rule["alert"] for rule in rules}
    wanted = {"ElastaneJobStuck", "ElastaneRecoveriesAboveNormal", "ElastanePredictionOff", "ElastaneDiskFilling"}
    assert wanted <= names
    assert len(names) == len(rules)
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in rules)


def test_the_operator_s_rules_are_those_of_compose() -> None:
    built = named(build(KUBERNETES / "overlays" / "gpu-pool"))
    assert built["PrometheusRule", "elastane"]["spec"] == RULES


def test_panels_lie_beside_each_other() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
