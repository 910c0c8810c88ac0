from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.adapters.database.migrate import upgrade
from tests.api.live import LiveService, settings


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """One for all tests: whatever one of them leaves behind is none of another's business."""
    live = LiveService(settings(tmp_path_factory.mktemp("home")))
    yield live
    live.stop()


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the schema and nothing in it, for services that need not make it themselves."""
    path = tmp_path_factory.mktemp("template") / "elastane.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def start(tmp_path: Path, migrated: Path) -> Iterator[Callable[..., LiveService]]:
    """Starts a service of the test's own; ended with the test."""
    started: list[LiveService] = []

    def begin(home: Path | None = None, *, launcher: Any = None, **over: Any) -> LiveService:
        made = settings(home or tmp_path / "home", **over)
        made.home.mkdir(exist_ok=True)
        if not made.sqlite_path.exists():
            shutil.copy(migrated, made.sqlite_path)
        live = LiveService(made, launcher)
        started.append(live)
        return live

    yield begin
    for live in started:
        live.stop()
