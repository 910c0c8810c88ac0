"""What a fresh interpreter has loaded after an import: the rule itself, not its shadow in the source."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.architecture.source_tree import ROOT, files, name

HEAVY = {"torch", "ray", "numpy", "safetensors", "transformers"}

SCRIPT = """
import importlib, sys
before = set(sys.modules)
for module in sys.argv[1:]:
    importlib.import_module(module)
print(*sorted({loaded.split(".")[0] for loaded in set(sys.modules) - before}))
"""


def modules(*folders: str) -> list[str]:
    found = [
        name(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path in files(".py", under=folders)
    ]
    return [module for module in found if not module.endswith("__main__")]


def loaded_by(names: list[str]) -> set[str]:
    """Top-level packages that these imports bring into an interpreter that had nothing."""
    run = subprocess.run([sys.executable, "-c", SCRIPT, *names], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return {package for package in run.stdout.split() if not package.startswith("_sysconfigdata")}


def test_the_layout_is_the_standard_library() -> None:
    assert loaded_by(modules("workers/layout")) - sys.stdlib_module_names == {"workers"}


def test_the_domain_is_the_standard_library_and_pydantic() -> None:
    of_pydantic = {"pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}
    assert loaded_by(modules("service/domain")) - sys.stdlib_module_names - of_pydantic == {"service"}


@pytest.mark.parametrize("plane", ["service", "api"])
def test_the_control_plane_loads_neither_torch_nor_ray(plane: str) -> None:
    assert loaded_by(modules(plane)) & HEAVY == set()


def test_the_engine_loads_nothing_of_ray_or_the_control_plane() -> None:
    assert loaded_by(modules("workers/engine")) & {"ray", "service", "api", "pydantic", "sqlalchemy"} == set()


def test_a_worker_loads_neither_fsdp_nor_a_compiler_before_its_job_needs_them() -> None:
    """A third of its start. All of them bring sympy."""
    assert "sympy" not in loaded_by(["workers.worker.actor", "workers.worker.member", "workers.worker.process_group"])
