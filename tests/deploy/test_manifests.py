"""Every manifest of every overlay is what Kubernetes and the operator take, and keeps the promises of the README."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import kubernetes_validate
import pytest

from service.settings import Settings
from tests.deploy.kustomize import KUBERNETES, OVERLAYS, Manifest, build, has_kubectl, kubectl, named
from tests.deploy.raycluster import problems

RELEASE = "1.33"
# Kinds of operators, which kubernetes-validate does not know.
CUSTOM = {"RayCluster", "ServiceMonitor", "PrometheusRule"}
Named = dict[tuple[str, str], Manifest]


@pytest.fixture(params=OVERLAYS)
def built(request: pytest.FixtureRequest) -> Named:
    return named(build(KUBERNETES / "overlays" / request.param))


def pods(built: Named) -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything that becomes a pod, as the manifest of one."""
    for (kind, name), manifest in built.items():
        spec = manifest.get("spec", {})
        templates = [spec.get("template"), spec.get("jobTemplate", {}).get("spec", {}).get("template")]
        templates += [
            group["template"] for group in (spec.get("headGroupSpec"), *spec.get("workerGroupSpecs", [])) if group
        ]
        for template in filter(None, templates):
            meta = {**template.get("metadata", {}), "name": name}
            yield f"{kind} {name}", {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


def containers(built: Named) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, pod in pods(built):
        for container in pod["spec"]["containers"]:
            yield f"{name}/{container['name']}", container


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_both_ways_to_build_an_overlay_give_the_same(overlay: str) -> None:
    folder = KUBERNETES / "overlays" / overlay
    ways = [build, *([kubectl] if has_kubectl() else [])]
    first, *others = [named(way(folder)) for way in ways]
    assert len(first) == len(build(folder)), "two manifests of one name"
    assert all(other == first for other in others)


def test_core_kinds_pass_a_strict_check_and_the_others_are_checked_here(built: Named) -> None:
    for (kind, _), manifest in built.items():
        if kind not in CUSTOM:
            kubernetes_validate.validate(manifest, RELEASE, strict=True)
    for _, pod in pods(built):
        kubernetes_validate.validate(pod, RELEASE, strict=True)
    assert list(problems(built["RayCluster", "elastane-ray"]["spec"])) == []


def test_a_field_that_the_operator_does_not_know_is_found() -> None:
    spec = {"rayVersion": 2, "authOptions": {"mode": "none"}, "workerGroupSpecs": [{"minReplica": 0}]}
    assert list(problems(spec)) == [
        "spec.rayVersion: 2 is no str",
        "spec.authOptions.mode: none is none of ['disabled', 'token']",
        "spec.workerGroupSpecs.0.minReplica: no such field",
    ]


def test_no_container_has_rights_or_a_root_to_write_to(built: Named) -> None:
    for name, pod in pods(built):
        context = pod["spec"]["securityContext"]
        assert context["runAsNonRoot"], name
        assert context["runAsUser"] > 0, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
    for name, container in containers(built):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        assert {"requests", "limits"} <= set(container["resources"]), name
        tag = container["image"].rpartition(":")[2]
        assert tag[0].isdigit(), f"{name} is not pinned: {container['image']}"


def test_only_ray_s_head_speaks_to_kubernetes(built: Named) -> None:
    accounts = {name: manifest for (kind, name), manifest in built.items() if kind == "ServiceAccount"}
    mounted = {name for name, account in accounts.items() if account.get("automountServiceAccountToken", True)}
    assert mounted == {"elastane-ray-head"}
    for name, pod in pods(built):
        account = pod["spec"].get("serviceAccountName")
        assert account in mounted or pod["spec"]["automountServiceAccountToken"] is False, name


def test_secrets_are_named_and_never_written_down(built: Named) -> None:
    assert not [name for kind, name in built if kind == "Secret"]
    for name, container in containers(built):
        for variable in container.get("env", []):
            secret = any(word in variable["name"] for word in ("TOKEN", "PASSWORD", "URL"))
            assert not secret or "secretKeyRef" in variable["valueFrom"], f"{name}: {variable}"


def test_the_quota_is_what_the_worker_groups_can_reach(built: Named) -> None:
    settings = built["ConfigMap", "elastane-settings"]["data"]
    resource = settings["ELASTANE_SLOT_KIND"].upper()
    groups = built["RayCluster", "elastane-ray"]["spec"]["workerGroupSpecs"]
    most = sum(group["maxReplicas"] * int(group["resources"][resource]) for group in groups)
    assert int(settings["ELASTANE_MAX_SLOTS"]) == most
    assert all(group["minReplicas"] == group["replicas"] == 0 for group in groups), "idle machines are let go"


def test_every_setting_is_one_that_the_service_reads(built: Named) -> None:
    data = built["ConfigMap", "elastane-settings"]["data"]
    read = {name.removeprefix("ELASTANE_").lower(): value for name, value in data.items()}
    assert set(read) <= set(Settings.model_fields)
    assert Settings(**read).max_slots == int(data["ELASTANE_MAX_SLOTS"])


def test_ray_asks_for_a_token_keeps_its_state_and_is_the_version_of_the_image(built: Named) -> None:
    spec = built["RayCluster", "elastane-ray"]["spec"]
    assert spec["authOptions"] == {"mode": "token"}
    assert spec["gcsFaultToleranceOptions"]["redisAddress"] == "elastane-redis:6379"
    assert spec["rayVersion"] == version("ray")
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


def test_a_worker_is_drained_within_its_grace_and_has_shared_memory(built: Named) -> None:
    for group in built["RayCluster", "elastane-ray"]["spec"]["workerGroupSpecs"]:
        pod = group["template"]["spec"]
        container = pod["containers"][0]
        command = container["lifecycle"]["preStop"]["exec"]["command"]
        assert command[:-1] == ["python", "-m", "workers.drain", "--within"]
        assert float(command[-1]) < pod["terminationGracePeriodSeconds"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounts["dshm"] == "/dev/shm"
        assert {volume["name"] for volume in pod["volumes"]} == set(mounts)


def test_spot_machines_are_asked_for_before_those_on_demand() -> None:
    spec = named(build(KUBERNETES / "overlays" / "gpu-pool"))["RayCluster", "elastane-ray"]["spec"]
    priority = {group["groupName"]: group["priority"] for group in spec["workerGroupSpecs"]}
    assert priority["spot"] > priority["on-demand"]


def test_every_port_is_closed_but_to_those_who_need_it(built: Named) -> None:
    policies = {name: each["spec"] for (kind, name), each in built.items() if kind == "NetworkPolicy"}
    assert policies["nobody-unless-named"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    doors = policies["ray"]["ingress"]
    strangers = [door for door in doors if door["from"] != [{"podSelector": policies["ray"]["podSelector"]}]]
    service = {"matchLabels": built["Deployment", "elastane"]["spec"]["selector"]["matchLabels"]}
    assert strangers == [{"from": [{"podSelector": service}], "ports": [{"port": 8265, "protocol": "TCP"}]}]
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(built)}
    for name, policy in policies.items():
        wanted = policy["podSelector"].get("matchLabels", {})
        assert any(wanted.items() <= each.items() for each in labels.values()), f"{name} is for no pod"
