from __future__ import annotations

import pytest
from hypothesis import settings

from tests.fakes.control_plane import ControlPlane

# A shared machine may be slow: what is tested is what is true, not how fast.
settings.register_profile("any-machine", deadline=None)
settings.load_profile("any-machine")


@pytest.fixture
def plane() -> ControlPlane:
    return ControlPlane()
