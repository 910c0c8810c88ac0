"""A package as pip takes it, built by hand: nothing is fetched, nothing is compiled."""

from __future__ import annotations

import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, *, version: str = "1.0", requires: str = "") -> Path:
    """Of one module, `name`, whose VERSION is `version`."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path
