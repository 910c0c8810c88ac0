"""What a benchmark leaves: one JSON document with the figures and all that is needed to read them later."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "results"


def machine() -> dict[str, Any]:
    """The load says whether the machine was quiet."""
    return {
        "cores": os.cpu_count(),
        "load_1min": os.getloadavg()[0],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "ray": version("ray"),
    }


def commit() -> str | None:
    run = subprocess.run(["git", "rev-parse", "HEAD"], cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    return run.stdout.strip() or None


def read(name: str) -> dict[str, Any] | None:
    """What the last run of a benchmark left; None where it has left nothing."""
    path = FOLDER / f"{name}.json"
    document: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return document


def write(name: str, *, settings: Mapping[str, Any], figures: Mapping[str, Any]) -> Path:
    """`results/NAME.json`, replacing the former one."""
    FOLDER.mkdir(exist_ok=True)
    document = {
        "name": name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        "settings": dict(settings),
        "figures": dict(figures),
    }
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path
