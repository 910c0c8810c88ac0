from __future__ import annotations

import pytest

from tests.fakes.control_plane import ControlPlane


@pytest.fixture
def plane() -> ControlPlane:
    return ControlPlane()
