from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.live import LiveService, settings


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """One for all tests: whatever one of them leaves behind is none of another's business."""
    live = LiveService(settings(tmp_path_factory.mktemp("home")))
    yield live
    live.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., LiveService]]:
    """Starts a service of the test's own; ended with the test."""
    started: list[LiveService] = []

    def begin(home: Path | None = None, *, launcher: Any = None, **over: Any) -> LiveService:
        live = LiveService(settings(home or tmp_path / "home", **over), launcher)
        started.append(live)
        return live

    yield begin
    for live in started:
        live.stop()
