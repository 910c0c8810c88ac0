"""Image and compose files: what linters say, and what no linter knows. Nothing is built: that needs an engine."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import Settings
from tests.deploy.kustomize import KUBERNETES

ROOT = Path(__file__).parents[2]
IMAGES = sorted((ROOT / "deploy" / "images").glob("*.Dockerfile"))
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
# Uids of images that are not ours: these begin as root to own their volume, then step down.
STEPS_DOWN = {"postgres"}


@pytest.mark.parametrize("image", IMAGES, ids=lambda path: path.stem)
def test_the_linter_has_nothing_against_an_image(image: Path) -> None:
    hadolint = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = subprocess.run([hadolint, "--no-color", image], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("image", IMAGES, ids=lambda path: path.stem)
def test_an_image_is_pinned_has_a_health_check_and_no_root(image: Path) -> None:
    text = image.read_text()
    assert re.search(r"^FROM \S+:\d+\.\d+\.\d+\S*$", text, flags=re.MULTILINE)
    assert re.search(r"^USER 10001:10001$", text, flags=re.MULTILINE)
    assert "HEALTHCHECK" in text
    installs = re.findall(r"pip install .*", text)
    assert installs
    assert all("-c constraints.txt" in each for each in installs), "every version is one that the tests ran with"


@pytest.mark.parametrize("image", IMAGES, ids=lambda path: path.stem)
def test_an_image_copies_what_there_is_and_what_is_sent_to_the_engine(image: Path) -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        word for line in re.findall(r"^COPY (.*) \S+$", image.read_text(), flags=re.MULTILINE) for word in line.split()
    }
    assert copied <= sent
    assert [name for name in sent if not (ROOT / name).exists()] == []


def test_the_data_plane_has_one_torch_and_the_control_plane_none() -> None:
    control, worker = (image.read_text() for image in IMAGES)
    assert "torch" not in control.lower().replace("without torch", "")
    assert set(re.findall(r"torch==[\d.]+", worker)) == {"torch==2.13.0"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_compose_service_is_pinned_read_only_and_without_capabilities(name: str) -> None:
    service = SERVICES[name]
    assert re.search(r":(v|RELEASE\.)?\d[\w.:-]*$", service["image"]), service["image"]
    assert service["read_only"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert service.get("cap_drop") == (None if name in STEPS_DOWN else ["ALL"])
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert "healthcheck" in service or "build" in service, "ours are in their image"


def test_compose_waits_for_what_is_there_and_mounts_what_it_declares() -> None:
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", {})) <= set(SERVICES), name
        sources = {mount.split(":")[0] for mount in service.get("volumes", [])}
        folders = {source for source in sources if source.startswith(("./", "/"))}
        assert sources - folders <= set(COMPOSE["volumes"]), name
        assert [folder for folder in folders if not (ROOT / folder).is_dir()] == [], name


def test_ray_is_never_published_and_asks_for_a_token() -> None:
    for name in ("ray-head", "ray-worker"):
        assert "ports" not in SERVICES[name]
        assert SERVICES[name]["environment"]["RAY_AUTH_MODE"] == "token"


def test_every_setting_is_one_that_the_service_reads() -> None:
    names = {name for service in SERVICES.values() for name in service.get("environment", {})}
    ours = {name.removeprefix("ELASTANE_").lower() for name in names if name.startswith("ELASTANE_")}
    assert ours
    assert ours <= set(Settings.model_fields)


def test_the_gpu_override_changes_services_that_there_are() -> None:
    override = yaml.safe_load((ROOT / "docker-compose.gpu.yml").read_text())["services"]
    assert set(override) <= set(SERVICES)


def test_compose_and_kubernetes_run_the_same_images() -> None:
    manifests = "".join(path.read_text() for path in KUBERNETES.rglob("*.yaml"))
    used = set(re.findall(r"image: (\S+)", manifests)) - {"valkey/valkey:8.1.3-alpine"}
    ours = {service["image"] for service in SERVICES.values()}
    assert used <= ours | {"elastane-worker:0.1.0-cuda"}
