"""Builds an overlay as `kubectl kustomize` does, as far as ours go: resources, components, JSON patches.

So the manifests are checked on machines without kubectl too.
"""

from __future__ import annotations

import copy
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]

KUBERNETES = Path(__file__).parents[2] / "deploy" / "kubernetes"
OVERLAYS = ("laptop", "gpu-pool")
_KNOWN = {"apiVersion", "kind", "resources", "components", "patches"}


def build(folder: Path) -> list[Manifest]:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert set(kustomization) <= _KNOWN, f"{folder.name}: this builder does not know {set(kustomization) - _KNOWN}"
    manifests: list[Manifest] = []
    for name in [*kustomization.get("resources", []), *kustomization.get("components", [])]:
        path = folder / name
        manifests += build(path) if path.is_dir() else _documents(path.read_text())
    for patch in kustomization.get("patches", []):
        text = patch["patch"] if "patch" in patch else (folder / patch["path"]).read_text()
        chosen = [each for each in manifests if _name(each) == (patch["target"]["kind"], patch["target"]["name"])]
        assert len(chosen) == 1, f"{folder.name}: a patch is for {patch['target']}, which {len(chosen)} manifests are"
        for operation in yaml.safe_load(text):
            _replace(chosen[0], operation)
    return manifests


def kubectl(folder: Path) -> list[Manifest]:
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=True, timeout=60)
    return _documents(done.stdout)


def has_kubectl() -> bool:
    return shutil.which("kubectl") is not None


def named(manifests: Iterable[Manifest]) -> dict[tuple[str, str], Manifest]:
    return {_name(each): each for each in manifests}


def _name(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def _documents(text: str) -> list[Manifest]:
    return [document for document in yaml.safe_load_all(text) if document]


def _replace(manifest: Manifest, operation: dict[str, Any]) -> None:
    """RFC 6902's `replace`: what it names must be there."""
    assert operation["op"] == "replace", operation
    *path, last = operation["path"].removeprefix("/").split("/")
    place: Any = manifest
    for step in path:
        place = place[int(step) if isinstance(place, list) else step]
    assert last in place, f"{operation['path']} is not there to be replaced"
    place[last] = copy.deepcopy(operation["value"])
